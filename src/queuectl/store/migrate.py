"""The numbered scripts that bring a database to this program's schema."""

from __future__ import annotations

import os

from queuectl.errors import Outdated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NEWEST = 19
FOLDER = os.path.join(os.path.dirname(__file__), "migrations")


def check(version: int, where: str) -> None:
    """Refuse a database that only a newer program understands."""
    if version > NEWEST:
        raise Outdated(
            f'"{where}" was written by a newer queuectl (schema {version}, this one knows {NEWEST})',
            "upgrade this queuectl; the queue was not touched",
        )


def scripts_after(version: int, engine: str) -> Iterator[tuple[int, str]]:
    """The scripts still to run, in order; those named after the engine follow the common ones."""
    for name in sorted(os.listdir(FOLDER), key=lambda name: (name[:4], name.count("."))):
        number, kind = int(name[:4]), name.split(".")[1]
        if number > version and kind in ("sql", engine):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as script:
                yield number, script.read()
