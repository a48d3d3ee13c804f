"""What is trusted: files and folders that only we, or root, could have written."""

from __future__ import annotations

import ast
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuectl.errors import StoreUnavailable, Untrusted
from queuectl.system import private_files

SOURCE = Path(private_files.__file__).parents[1]
STRANGER = os.getuid() + 4711


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the owner of the files is free to change, with all that leads to it."""
    path = tmp_path / "folder"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def as_stranger(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on, what belongs to us is another user's. (The folders above are told to be root's.)"""

    def change() -> None:
        monkeypatch.setattr(private_files, "_is_trusted", lambda uid: uid == STRANGER)
        monkeypatch.setattr(private_files, "_is_outside", lambda uid: True)  # of the way there

    return change


def make(path: Path, what: str) -> None:
    match what:
        case "file":
            path.write_text("x")
            path.chmod(0o600)
        case "folder":
            path.mkdir(mode=0o700)
        case "link":
            target = path.with_name("target")
            make(target, "file")
            path.symlink_to(target)
        case "pipe":
            os.mkfifo(path, 0o600)
        case "socket":
            os.chdir(path.parent)  # a socket's name must be short
            socket.socket(socket.AF_UNIX).bind(path.name)
            path.chmod(0o600)
        case "hard link":
            target = path.with_name("target")
            make(target, "file")
            os.link(target, path)


def refusal(act: Callable[[], object]) -> Untrusted:
    with pytest.raises(Untrusted) as refused:
        act()
    assert isinstance(refused.value, StoreUnavailable)
    assert isinstance(refused.value, OSError)
    assert refused.value.hint
    assert "\n" not in refused.value.message + refused.value.hint
    return refused.value


READ = os.O_RDONLY
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@pytest.mark.parametrize("flags", [READ, APPEND, os.O_RDWR])
@pytest.mark.parametrize("what", ["folder", "link", "pipe", "socket", "hard link"])
def test_only_a_regular_file_with_one_name_is_opened(
    folder: Path, what: str, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    path = folder / "file"
    make(path, what)
    before = path.lstat()
    error = refusal(lambda: private_files.open_file(str(path), flags))
    assert str(path) in error.message
    assert private_files.owner_of(before) in error.message
    assert what in error.message.replace("symbolic ", "").replace("named ", "")
    assert path.lstat() == before
    if (folder / "target").exists():
        assert (folder / "target").read_text() == "x"


def test_a_trusted_file_is_opened_and_a_missing_one_is_made_private(folder: Path) -> None:
    path = str(folder / "file")
    with pytest.raises(FileNotFoundError):
        private_files.open_file(path, READ)
    with open(private_files.open_file(path, APPEND), "ab") as file:
        file.write(b"hello")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open(private_files.open_file(path, READ)) as text:
        assert text.read() == "hello"


def test_a_file_that_others_can_write_to_is_refused(folder: Path) -> None:
    path = folder / "file"
    make(path, "file")
    path.chmod(0o602)
    assert "can be written by everyone" in refusal(lambda: private_files.open_file(str(path), READ)).message
    assert "chmod go-w" in refusal(lambda: private_files.check_file(str(path))).hint
    os.close(private_files.open_file(str(path), READ, written_by_job=True))


def test_a_secret_that_others_can_read_is_refused(folder: Path) -> None:
    path = folder / "token"
    make(path, "file")
    os.close(private_files.open_file(str(path), READ, secret=True))
    path.chmod(0o644)
    os.close(private_files.open_file(str(path), READ))
    assert "can be read by others" in refusal(lambda: private_files.open_file(str(path), READ, secret=True)).message


def test_a_file_of_another_user_is_refused(folder: Path, as_stranger: Callable[[], None]) -> None:
    path = folder / "file"
    make(path, "file")
    os.close(private_files.open_file(str(path), READ))
    as_stranger()
    owner = private_files.owner_of(path.stat())
    for act in (
        lambda: private_files.open_file(str(path), READ),
        lambda: private_files.open_file(str(path), READ, in_checked_folder=True),
        lambda: private_files.open_file(str(path), APPEND),
        lambda: private_files.open_given(str(path)),
        lambda: private_files.check_file(str(path)),
        lambda: private_files.check_folder(str(folder)),
        lambda: private_files.make_folder(str(folder)),
    ):
        assert f"belongs to {owner}" in refusal(act).message


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_for_our_own_files(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    (folder / "file").touch(mode=0o600)
    for act in (
        lambda: private_files.check_folder(str(folder)),
        lambda: private_files.make_folder(str(folder)),
        lambda: private_files.open_file(str(folder / "file"), READ),
        lambda: private_files.open_file(str(folder / "new"), APPEND),
    ):
        assert "can be written by everyone" in refusal(act).message
    assert not (folder / "new").exists()


def test_a_sticky_folder_may_lead_to_ours_but_no_other_that_everyone_can_write_to(folder: Path) -> None:
    folder.chmod(0o1777)
    below = str(folder / "one" / "two")
    private_files.make_folder(below)
    assert private_files.resolve(below + "/queue.db") == below + "/queue.db"
    assert private_files.is_shared(str(folder))
    assert not private_files.is_shared(below)
    folder.chmod(0o777)
    assert str(folder) in refusal(lambda: private_files.resolve(below + "/queue.db")).message
    refusal(lambda: private_files.check_folder(below))


def test_a_folder_of_another_user_leads_to_nothing_that_can_be_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "below").mkdir()
    below = (folder / "below").stat()
    real = os.lstat

    def with_an_owner(path: str) -> os.stat_result:
        found = real(path)
        return os.stat_result([*found[:4], STRANGER, *found[5:]]) if str(path) == str(folder) else found

    monkeypatch.setattr(os, "lstat", with_an_owner)
    assert below
    error = refusal(lambda: private_files.check_folder(str(folder / "below")))
    assert f'"{folder}" belongs to user {STRANGER}' in error.message


def test_in_a_user_namespace_the_folders_of_users_it_does_not_know_may_lead_to_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    assert not private_files._is_outside(STRANGER)
    (tmp_path / "uid_map").write_text(f"{os.getuid()} 1000 1\n")
    real = open

    def another_map(path: str, **how: str) -> object:
        return real(tmp_path / "uid_map" if path == "/proc/self/uid_map" else path, **how)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", another_map)
    assert private_files._is_outside(overflow)
    assert not private_files._is_outside(STRANGER)
    (tmp_path / "uid_map").write_text("0 0 4294967295\n")
    assert not private_files._is_outside(overflow)


def test_only_links_of_our_own_are_followed(folder: Path, as_stranger: Callable[[], None]) -> None:
    (folder / "here").mkdir()
    (folder / "there").symlink_to("here")
    (folder / "far").symlink_to(folder / "there" / ".." / "there")
    assert private_files.resolve(str(folder / "far" / "x")) == os.path.realpath(folder / "far" / "x")
    as_stranger()
    assert str(folder / "far") in refusal(lambda: private_files.resolve(str(folder / "far" / "x"))).message


def test_a_path_is_resolved_as_the_system_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "up").symlink_to("a/b/..")
    monkeypatch.chdir(folder / "a")
    for path in ("b", "./b/../b", "../up/b/x", "new/x", "/", "//tmp/../", str(folder / "up" / ".." / "a")):
        assert private_files.resolve(path) == os.path.realpath(path)
    (folder / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        private_files.resolve(str(folder / "loop"))


@pytest.mark.parametrize(
    ("members", "trusted"), [([], True), (["me"], True), (["me", "root"], True), (["you"], False)]
)
def test_the_group_that_is_ours_alone_may_write(
    folder: Path, members: list[str], trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems make a group for each user, and let it write to what the user makes."""
    import grp
    import pwd

    own = pwd.struct_passwd(["me", "x", os.getuid(), os.getgid(), "", "/", "/bin/sh"])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: own)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(["me", "x", gid, members]))
    folder.chmod(0o770)
    if trusted:
        private_files.check_folder(str(folder))
        private_files.resolve(str(folder / "x"))
        return
    assert "can be written by the group me" in refusal(lambda: private_files.resolve(str(folder / "x"))).message
    monkeypatch.setattr(private_files, "ROOT", -1)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(["team", "x", gid, []]))
    assert not private_files._is_own_group(os.getgid()), (
        "a group of another name may have members that are not listed"
    )


@pytest.fixture
def pipe() -> Iterator[str]:
    reader, writer = os.pipe()
    os.write(writer, b"a secret")
    os.close(writer)
    yield f"/dev/fd/{reader}"
    os.close(reader)


def test_a_file_that_the_user_names_may_be_a_link_or_a_pipe(folder: Path, pipe: str) -> None:
    make(folder / "link", "link")
    for path, content in ((str(folder / "link"), "x"), (pipe, "a secret")):
        with open(private_files.open_given(path)) as file:
            assert file.read() == content
    os.link(folder / "target", folder / "hard")
    refusal(lambda: private_files.open_given(str(folder / "hard")))


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(folder: Path, as_stranger: Callable[[], None]) -> None:
    make(folder / "pipe", "pipe")
    as_stranger()
    refusal(lambda: private_files.open_given(str(folder / "pipe")))


def test_all_that_is_wrong_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "good").mkdir(mode=0o700)
    for what in ("file", "pipe"):
        make(folder / "good" / what, what)
    for what in ("link", "folder", "socket"):
        make(folder / "good" / what, what)
    (folder / "bad").mkdir()
    (folder / "bad").chmod(0o777)
    monkeypatch.chdir(folder)
    (folder / "writable").touch()
    (folder / "writable").chmod(0o666)
    files = [str(folder / name) for name in ("good/file", "writable", "missing")]
    folders = [str(folder / name) for name in ("good", "bad", "missing")]
    wrong = [error.message for error in private_files.untrusted(files, folders)]
    assert len(wrong) == 5
    for name in ("good/link", "good/folder", "good/socket", "bad", "writable"):
        assert sum(f'"{folder / name}"' in message for message in wrong) == 1


# -- nothing else opens such files -----------------------------------------------------------------------

OPENERS = {"open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "mkfifo", "mkdir", "makedirs"}
ALLOWED = {
    # The kernel's files, the system's and our own package's.
    "system/procfs.py", "worker/cgroup.py", "worker/run_marks.py", "schedules/local_timezone.py", "store/migrate.py",
    "store/sqlite_health.py", "web/rendering.py",
    # Devices, standard streams, and the folder that a worker was started in.
    "cli/__init__.py", "cli/streams.py", "worker/process.py", "worker/worker.py",
    # Opens connections, not files.
    "client/shared_connection.py",
    # What the user names as input.
    "cli/enqueue_core.py",
    # New names, and the log of the database, which was checked before.
    "store/sqlite.py", "system/wakeup.py",
    "system/private_files.py",
}  # fmt: skip


def test_nothing_else_opens_files_that_must_be_trusted() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and opens_by_name(node)
    }
    assert found == ALLOWED, "open it with queuectl.system.private_files, or say here why that is not needed"


def opens_by_name(call: ast.Call) -> bool:
    """A call that opens or makes a file; to wrap what `private_files` has opened is none."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name not in OPENERS or (isinstance(on, ast.Name) and on.id not in ("os", "path", "file")):
        return False
    if isinstance(on, ast.Attribute):  # self.open(), webbrowser.open()
        return False
    wrapped = call.args[0] if call.args else None
    return not (
        isinstance(wrapped, ast.Call)
        and isinstance(wrapped.func, ast.Attribute)
        and isinstance(wrapped.func.value, ast.Name)
        and wrapped.func.value.id == "private_files"
    )
