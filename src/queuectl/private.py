"""Folders that only their owner can enter: commands and output may hold secrets."""

from __future__ import annotations

import os


def make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700 from its first moment."""
    if os.path.isdir(folder):
        return
    make_folder(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)  # a umask may also take too much away
    except FileExistsError:  # by another process, just now; or it is no folder, which using it will tell
        pass
