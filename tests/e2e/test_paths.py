"""Names of files that are no good, in every place that takes one, and surroundings that are no good: each is used or
refused with one line, and nothing is called a bug."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import queuectl.cli
from queuectl.cli.app import COMMANDS, cli
from queuectl.errors import QueuectlError
from queuectl.web import server
from tests.e2e.conftest import Cli, Result

NAMES = {
    "not UTF-8": "\udcff",
    "not UTF-8, in a folder": "a\udcff/b",
    "empty": "",
    "a space": " ",
    "line ends": "a\nb\r",
    "an escape sequence": "\x1b[31mred\x07",
    "a turn of direction": "a\u202eb",
    "too long a name": "a" * 300,
    "too long a path": "a/" * 3000,
    "a folder": "folder",
    "a folder with a slash": "folder/",
    "the root": "/",
    "in a file": "file/x",
    "in no folder": "nowhere/x",
    "a loop": "loop",
    "a dangling link": "dangling",
    "a socket": "socket",
    "binary": "binary",
    "a file": "file",
    "nothing": "/dev/null",
    "no room": "/dev/full",
    "no end": "/dev/zero",
    "no such handle": "/proc/self/fd/99",
    "own memory": "/proc/self/mem",
    "nobody's home": "~nobody-of-this-name/x",
    "a uri": "file:x?mode=memory",
    "memory": ":memory:",
    "an address": "sqlite:///\udcff",
    "a server": "postgresql://\udcff@127.0.0.1:1/x",
    "a port": "postgresql://127.0.0.1:99999999/x",
    "a schema": "postgresql://127.0.0.1:1/x?schema=\udcff",
}
# Where a file or folder is named: the words of the command, and "@" in the place of the name.
PLACES = {
    "backup file": "backup @",
    "copy url": "copy --to @",
    "enqueue cwd": "enqueue --cwd @ true",
    "enqueue file": "enqueue --lines -f @",
    "hook add secret_file": "hook add h https://example.com/ --secret-file @",
    "schedule add cwd": "schedule add s --every 1h --replace --cwd @ -- true",
    "serve token_file": "serve --port 0 --token-file @",
    "db": "--db @ status",
    "enqueue db": "enqueue --db @ true",
    "doctor db": "doctor --db @",
    "serve db": "serve --db @ --token-file no-tokens",
    "list db": "list --db @",
    "completion": "completion @",
}


@pytest.fixture(scope="module")
def q(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A queue with a job, and things that are no plain files beside it."""
    q = Cli(tmp_path_factory.mktemp("paths"))
    q.ok("enqueue", "--id", "seed", "true")
    (q.folder / "folder").mkdir()
    (q.folder / "file").write_text("true\n")
    (q.folder / "binary").write_bytes(bytes(range(256)))
    (q.folder / "loop").symlink_to("loop")
    (q.folder / "dangling").symlink_to("nowhere/x")
    with contextlib.chdir(q.folder), socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")  # the whole path may be too long for one
    yield q
    q.end_all()


Run = Callable[..., Result]


@pytest.fixture
def run(q: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, which takes a tenth of the time. It never gets so far as to serve."""

    def listen(*_: object) -> None:
        raise QueuectlError("cannot listen", "this is a test")

    def run(*args: str, env: dict[str, str] | None = None) -> Result:
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            code = queuectl.cli.run(list(args))
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    monkeypatch.setattr(server, "listen", listen)
    monkeypatch.setattr("queuectl.cli.render._address", "")
    for name in ("QUEUECTL_DB", "HOME", "TZ", "TERM"):
        monkeypatch.setenv(name, q.env[name])
    for name in ("QUEUECTL_DEBUG", "QUEUECTL_LOG_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(q.folder)
    return run


def is_used_or_refused(result: Result, what: object) -> None:
    assert result.code in (0, 1, 2, 3, 4, 5), (what, result)
    assert "Traceback" not in result.err, (what, result)
    assert "bug in queuectl" not in result.err, (what, result)
    if result.code > 1 or (result.code and "BAD" not in result.out):  # doctor finds, and does not refuse
        assert re.fullmatch(r"Error: .+ Hint: .+\n", result.err), (what, result)


def test_every_place_is_known() -> None:
    root, found = click.Context(cli), {"copy url", "completion"}
    for name in COMMANDS:
        command = cli.get_command(root, name)
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        for second, one in inner.items():
            assert one is not None
            words = f"{name} {second}".strip()
            found |= {f"{words} {param.name}" for param in one.params if isinstance(param.type, click.Path)}
    assert {place for place in found if not place.endswith(" db")} <= PLACES.keys()


@pytest.mark.parametrize("place", PLACES)
def test_any_name_in_any_place_is_used_or_refused(run: Run, place: str) -> None:
    for what, name in NAMES.items():
        args = [name if word == "@" else word for word in PLACES[place].split()]
        is_used_or_refused(run(*args), (place, what))


def test_a_name_that_is_no_utf8_names_a_file_of_commands(q: Cli) -> None:
    (Path(os.fsencode(q.folder).decode()) / "\udcfe").write_text("true\n")
    assert "Enqueued 1 job" in q("enqueue", "--lines", "-f", "\udcfe").out


def test_a_backup_that_is_refused_leaves_nothing(q: Cli) -> None:
    before = set(os.listdir(os.fsencode(q.folder)))
    result = q("backup", "\udcff")
    assert (result.code, "not valid UTF-8" in result.err) == (2, True)
    assert set(os.listdir(os.fsencode(q.folder))) == before


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("enqueue --lines -f <(printf 'true\\ntrue\\n')", "Enqueued 2 jobs"),
        (f"hook add pipe https://example.com/ --secret-file <(echo whsec_{'A' * 32})", "Hook pipe"),
        ("serve --port 0 --token-file <(echo short)", "at least 16"),
    ],
)
def test_a_pipe_is_read_as_a_file_would_be(q: Cli, command: str, says: str) -> None:
    result = q.shell(f"queuectl {command}")
    assert says in result.out + result.err, result


@pytest.mark.parametrize("args", ["backup @", "--db @ status", "copy --to @", "enqueue --db @ true"])
def test_a_pipe_that_nobody_writes_to_holds_up_nothing_that_is_no_reader(q: Cli, args: str) -> None:
    pipe = q.folder / "silent"
    if not pipe.exists():
        os.mkfifo(pipe, 0o600)
    result = q(*args.replace("@", str(pipe)).split())
    assert result.code
    is_used_or_refused(result, args)


# -- surroundings ----------------------------------------------------------------------------------------

ANY = [
    "status",
    "enqueue true",
    "list",
    "doctor",
    "show seed",
    "schedule list",
    "config list",
    "metrics",
    "--help",
    "",
]


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": ""}, {"COLUMNS": "0"}, {"COLUMNS": "1"}, {"COLUMNS": "garbage", "LINES": "-3"}, {"HOME": ""},
        {"HOME": "/nonexistent"}, {"HOME": "\udcff"}, {"XDG_DATA_HOME": "/dev/null"}, {"QUEUECTL_DB": "\udcff"},
        {"QUEUECTL_DB": "", "XDG_DATA_HOME": "/dev/null/x"}, {"QUEUECTL_DB": "", "XDG_DATA_HOME": "\udcff"},
        {"QUEUECTL_DB": "", "HOME": "/proc"}, {"QUEUECTL_LOG_DIR": "/dev/null/x"}, {"QUEUECTL_LOG_DIR": "\udcff"},
        {"TMPDIR": "/nonexistent"}, {"PATH": "\udcff"}, {"QUEUECTL_TOKEN": "\udcff"}, {"USER": "\udcff"},
        {"_QUEUECTL_COMPLETE": "bash_complete"}, {"_QUEUECTL_COMPLETE": "zsh_complete", "COMP_WORDS": "\udcff"},
        {"_QUEUECTL_COMPLETE": "fish_complete", "COMP_WORDS": "x", "COMP_CWORD": "\udcff"},
        {"_QUEUECTL_COMPLETE": "bash_complete", "COMP_WORDS": "queuectl \udcff ", "COMP_CWORD": "2"},
    ],
    ids=str,
)  # fmt: skip
def test_odd_surroundings_are_borne_or_refused(run: Run, env: dict[str, str]) -> None:
    for args in ANY:
        is_used_or_refused(run(*args.split(), env=env), (args, env))


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "xx_YY.broken"},
        {"PYTHONIOENCODING": "ascii"},
        {"TZ": "No/Where"},
        {"TZ": "/etc/passwd"},
    ],
    ids=str,
)
def test_odd_languages_and_zones_are_borne(q: Cli, env: dict[str, str]) -> None:
    for args in ["enqueue echo\tü→", "list"]:
        is_used_or_refused(q(*args.split(" "), env=env), (args, env))


def test_a_folder_that_was_removed_is_borne_or_refused(q: Cli, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = q.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for args in [*ANY, "backup x", "enqueue --cwd x true", "schedule add s --every 1h --replace --cwd x -- true",
                 "--db x status", "copy --to x", "enqueue -f x", "hook add gone -- true", "worker list"]:  # fmt: skip
        result = run(*args.split())
        is_used_or_refused(result, args)
        assert "a system call failed" not in result.err, args
    assert not gone.exists()


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_borne(q: Cli, closed: str) -> None:
    for args in ("status", "enqueue -", "reset", "dlq purge", "top"):
        result = q.shell(f"queuectl {args} {closed}")
        assert result.code in (0, 2), (args, closed, result)
        assert "Traceback" not in result.err
        assert "bug in queuectl" not in result.err
