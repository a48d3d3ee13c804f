"""Which control group is ours to divide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from queuectl.worker import cgroup


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that looks like a mounted hierarchy with one service in it."""
    for folder in (tmp_path, tmp_path / "service"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").touch()
    return tmp_path


def delegated(tree: Path, own: str, root: str = "/") -> str:
    mounts, membership = tree / "mountinfo", tree / "cgroup"
    mounts.write_text(f"1 2 0:3 / / rw - ext4 x rw\n41 31 0:38 {root} {tree} rw,relatime - cgroup2 cgroup2 rw\n")
    membership.write_text(f"4:memory:/somewhere\n0::{own}\n")
    return cgroup.delegated(str(mounts), str(membership))


def test_the_root_of_all_we_see_is_ours(tree: Path) -> None:
    assert delegated(tree, "/") == str(tree)


def test_being_root_does_not_make_every_group_ours(tree: Path) -> None:
    if os.geteuid() == 0:
        assert delegated(tree, "/service") == ""
        os.setxattr(tree / "service", "user.delegate", b"1")
    assert delegated(tree, "/service") == str(tree / "service")


def test_a_mount_that_shows_a_part_is_understood(tree: Path) -> None:
    if os.geteuid() == 0:  # others may use what belongs to them
        assert delegated(tree, "/pod", root="/pod") == ""  # what is above us is not all there is
        os.setxattr(tree, "user.delegate", b"1")
    assert delegated(tree, "/pod", root="/pod") == str(tree)
    assert delegated(tree, "/elsewhere", root="/pod") == ""
    assert delegated(tree, "/podium", root="/pod") == ""


def test_a_mount_with_a_strange_name_disturbs_nobody(tree: Path) -> None:
    (tree / "cgroup").write_text("0::/\n")
    strange = b"9 2 0:3 / /mnt/caf\xe9 rw - ext4 x rw\n41 31 0:38 / %s rw - cgroup2 cgroup2 rw\n"
    (tree / "mountinfo").write_bytes(strange % os.fsencode(tree))
    assert cgroup.delegated(str(tree / "mountinfo"), str(tree / "cgroup")) == str(tree)


def test_without_a_hierarchy_there_is_no_group(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cgroup.delegated(str(tree / "none"), str(tree / "none")) == ""
    (tree / "cgroup").write_text("4:memory:/somewhere\n")
    (tree / "mountinfo").write_text("")
    assert cgroup.delegated(str(tree / "mountinfo"), str(tree / "cgroup")) == ""
    monkeypatch.setenv(cgroup.OFF, "1")
    assert cgroup.join("w1") == ""
    assert cgroup.members("") == set()
    cgroup.sweep("")
