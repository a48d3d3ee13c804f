"""Whose files these are: what is read back from disk is trusted only if nobody else could have written it.

A file is trusted if it belongs to us or to root and only its owner can write to it; a folder likewise, and so is each
folder on the way to it: whoever can write to one of them can put another file into the place of ours. A sticky folder
(/tmp) is good enough to lead to our files, for there others can add files, but not exchange ours.
"""

from __future__ import annotations

import errno
import os
import stat

from queuectl.errors import Untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import NoReturn

ROOT = 0
MOST_LINKS = 40  # as many as the kernel follows
_OTHERS_WRITE, _GROUP_WRITES, _OTHERS_ANY = 0o002, 0o020, 0o077
_NOT_OURS = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM)
_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


# -- folders ---------------------------------------------------------------------------------------------


def resolve(path: str) -> str:
    """Return the path without symbolic links, as `os.path.realpath` does. Raise Untrusted if others could have put a
    folder on the way there, or a link, or can exchange it."""
    ahead = _names(path if path.startswith("/") else os.path.join(os.getcwd(), path))
    real, links = "/", 0
    folder = os.lstat(real)
    while ahead:
        _check_passage(real, folder)
        name = ahead.pop()
        if name == "..":
            real = os.path.dirname(real)
            folder = os.lstat(real)
            continue
        entry_path = os.path.join(real, name)
        try:
            entry = os.lstat(entry_path)
        except FileNotFoundError:
            return os.path.join(entry_path, *reversed(ahead))
        if not stat.S_ISLNK(entry.st_mode):
            real, folder = entry_path, entry
            continue
        _check_owner(entry_path, entry)
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(entry_path)
        ahead += _names(target)
        if target.startswith("/"):
            real = "/"
            folder = os.lstat(real)
    return real


def _names(path: str) -> list[str]:
    """The names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700 from its first moment. Raise Untrusted if others
    could write to the one that is there."""
    _make(resolve(folder))
    check_folder(folder)


def _make(folder: str) -> None:
    if os.path.isdir(folder):
        return
    _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)  # a umask may also take too much away
    except FileExistsError:  # made by another process just now; the check decides whose
        pass


def check_folder(folder: str) -> None:
    """Raise Untrusted unless only we (or root) can write to this folder, FileNotFoundError if there is none."""
    real = resolve(folder)
    found = os.lstat(real)
    _check_owner(real, found)
    _check_kind(real, found, stat.S_IFDIR)
    _check_mode(real, found)


def is_shared(folder: str) -> bool:
    """Can others add files to this folder?"""
    return _open_to(os.stat(folder)) != ""


def _check_passage(path: str, folder: os.stat_result) -> None:
    """Raise Untrusted if others could exchange what is in this folder."""
    if not stat.S_ISDIR(folder.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if not _is_trusted(folder.st_uid) and not _is_outside(folder.st_uid):
        _check_owner(path, folder)
    if not folder.st_mode & stat.S_ISVTX:
        _check_mode(path, folder)


def _is_outside(uid: int) -> bool:
    """Is this how a user namespace shows the files of all users that it does not know, root's among them? The folders
    that lead to ours are theirs then (systemd's PrivateUsers=, bubblewrap)."""
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            overflow = int(file.read())
        with open("/proc/self/uid_map", encoding="ascii") as file:
            known = [[int(word) for word in line.split()] for line in file]
    except OSError:
        return False
    return uid == overflow and not any(first <= uid < first + count for first, _, count in known)


# -- files -----------------------------------------------------------------------------------------------


def open_file(
    path: str,
    flags: int,
    kind: int = stat.S_IFREG,
    *,
    secret: bool = False,
    written_by_job: bool = False,
    in_checked_folder: bool = False,
) -> int:
    """Open a file that is trusted, and only that; a missing one is made, 0600, if the flags say so. Links are not
    followed, and a pipe in its place keeps nobody waiting. `secret`: others must not be able to read it, either."""
    if flags & os.O_CREAT:
        check_folder(os.path.dirname(path))
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NOT_OURS:  # say what it is, and whose
            found = os.lstat(path)
            _check_owner(path, found)
            _check_kind(path, found, kind)
        raise
    try:
        if not flags & os.O_CREAT and not in_checked_folder:
            check_folder(os.path.dirname(path))
        found = os.fstat(file)
        _check_owner(path, found)
        _check_kind(path, found, kind)
        if not written_by_job:  # which has the umask it likes; nobody but us gets into the folder
            _check_mode(path, found)
            _check_names(path, found)
        if secret:
            _check_secret(path, found)
    except BaseException:
        os.close(file)
        raise
    return file


def open_given(path: str) -> int:
    """Open a secret file that the user has named, for reading. Unlike our own it may be a link, or a pipe as in
    `--token-file <(…)`, as long as nobody else has put it there."""
    folder, name = os.path.split(os.path.abspath(path))
    place = os.path.join(resolve(folder), name)
    _check_owner(path, os.lstat(place))
    file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        _check_owner(path, found)
        _check_mode(path, found)
        if stat.S_ISREG(found.st_mode):
            _check_names(path, found)
        os.set_blocking(file, True)
    except BaseException:
        os.close(file)
        raise
    return file


def check_file(path: str, shared: bool = False) -> os.stat_result | None:
    """Raise Untrusted if the file of this name is not trusted; None if there is none. For files that a library opens
    by name: call `resolve` first, then nobody else can exchange what is there. `shared`: others can add files."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    _check_owner(path, found)
    _check_kind(path, found, stat.S_IFREG)
    _check_mode(path, found)
    if shared:
        _check_names(path, found)
    return found


def untrusted(files: Iterable[str], folders: Iterable[str]) -> Iterator[Untrusted]:
    """Say what is wrong with these files, these folders, and the files in them; nothing twice."""
    checks: list[tuple[Callable[[str], None], str]] = [(_check_place, path) for path in files]
    for folder in folders:
        checks.append((check_folder, folder))
        if os.path.isdir(folder):
            checks += [(_check_entry, os.path.join(folder, name)) for name in os.listdir(folder)]
    told = set()
    for check, path in checks:
        try:
            check(path)
        except Untrusted as error:
            if error.message not in told:
                told.add(error.message)
                yield error
        except OSError:  # it is not there
            pass


def _check_place(path: str) -> None:
    resolve(path)
    check_file(path, is_shared(os.path.dirname(path)))


def _check_entry(path: str) -> None:
    found = os.lstat(path)
    _check_owner(path, found)
    _check_kind(path, found, stat.S_IFIFO if stat.S_ISFIFO(found.st_mode) else stat.S_IFREG)


# -- what is checked -------------------------------------------------------------------------------------


def _is_trusted(uid: int) -> bool:
    return uid in (ROOT, os.geteuid())


def _check_owner(path: str, found: os.stat_result) -> None:
    if _is_trusted(found.st_uid):
        return
    owner = owner_of(found)
    way_out = "remove it if it is not yours, or use another folder (--db, QUEUECTL_LOG_DIR)"
    if os.geteuid() == ROOT and not owner.startswith("user "):
        way_out = f"run queuectl as its owner: runuser -u {owner} -- queuectl …; or {way_out}"
    _refuse(f'"{path}" belongs to {owner}', way_out)


def _check_mode(path: str, found: os.stat_result) -> None:
    if others := _open_to(found):
        _refuse(
            f'"{path}" (owner: {owner_of(found)}) can be written by {others}',
            f"see what they have put there, then: chmod go-w {_quoted(path)}",
        )


def _check_secret(path: str, found: os.stat_result) -> None:
    if found.st_mode & _OTHERS_ANY:
        _refuse(f'"{path}" (owner: {owner_of(found)}) can be read by others', f"chmod 600 {_quoted(path)}")


def _check_kind(path: str, found: os.stat_result, kind: int) -> None:
    is_kind = stat.S_IFMT(found.st_mode)
    if is_kind != kind:
        _refuse(
            f'"{path}" (owner: {owner_of(found)}) is {_KINDS.get(is_kind, "a device")}, not {_KINDS[kind]}',
            "give another name, or see what it is and remove it",
        )


def _check_names(path: str, found: os.stat_result) -> None:
    if found.st_nlink > 1:
        _refuse(
            f'"{path}" (owner: {owner_of(found)}) is also known by another name (hard link)',
            f"see what it is, and remove it: rm {_quoted(path)}",
        )


def _open_to(found: os.stat_result) -> str:
    """Who can write to it besides its owner, in words; "" if nobody."""
    if found.st_mode & _OTHERS_WRITE:
        return "everyone"
    if found.st_mode & _GROUP_WRITES and not _is_own_group(found.st_gid):
        return f"the group {_group_name(found.st_gid)}"
    return ""


def _is_own_group(gid: int) -> bool:
    """Is nobody in this group but us and root? It is root's, or the one that many systems make for each user, or one
    that the system knows nothing of, which we were given (a volume's, in a container)."""
    import grp  # here: only a folder that its group can write to needs them
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = ""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid in (os.getegid(), *os.getgroups())
    return (gid == ROOT or group.gr_name == name) and set(group.gr_mem) <= {name, "root"}


def _group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def owner_of(found: os.stat_result) -> str:
    import pwd

    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return f"user {found.st_uid}"  # no name has a space in it


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)


def _refuse(message: str, hint: str) -> NoReturn:
    raise Untrusted(message, hint)
