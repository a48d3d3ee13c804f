"""A command in a warm interpreter cannot be told from one in a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.e2e.conftest import QUEUECTL, Cli, alive
from tests.e2e.warm import Warm

TELL = """
import gc, json, os, signal, sys, time
streams = (sys.stdin, sys.stdout, sys.stderr)
signals = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals()) if number < 32]
print(json.dumps({
    "args": sys.argv, "path": sys.path, "python": sys.executable, "flags": str(sys.flags), "name": __name__,
    "env": dict(os.environ), "cwd": os.getcwd(), "handles": sorted(os.listdir("/proc/self/fd"))[:3],
    "more": len(os.listdir("/proc/self/fd")), "tty": [stream.isatty() for stream in streams],
    "streams": [
        (s.fileno(), s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through) for s in streams
    ],
    "session": os.getsid(0), "group": os.getpgrp(), "signals": signals, "zone": time.tzname, "mask": os.umask(0),
    "collector": (gc.isenabled(), gc.get_threshold()), "file": __file__, "said": sys.stdin.read(),
}))
print("so", file=sys.stderr)
sys.stdout.flush()
"""
ENDS = {
    "in order": "os._exit(7)",
    "by a signal": "os.kill(os.getpid(), 9)",
    "with an error": "raise ValueError('so')",
}


def script(folder: Path, text: str) -> str:
    path = folder / "script"
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{text}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("end", ENDS)
def test_it_is_given_the_same_and_ends_the_same(tmp_path: Path, end: str) -> None:
    path = script(tmp_path, f"{TELL}\n{ENDS[end]}")
    env = {**Cli(tmp_path).env, "HOME": "/some\udcff/where", "A": ""}
    args = ("list", "", "a b", "\udcff", "ä")
    new = subprocess.run([path, *args], input=b"x\xffy", capture_output=True, env=env, cwd="/usr")
    code, out, err = Warm(path, env).run(args, b"x\xffy", env, Path("/usr"), 60)
    assert code == new.returncode
    for name, value in json.loads(new.stdout).items():
        assert json.loads(out)[name] == value, name
    assert (err.splitlines()[0], err.splitlines()[-1]) == (new.stderr.splitlines()[0], new.stderr.splitlines()[-1])


def test_it_takes_and_gives_more_than_a_pipe_holds(tmp_path: Path) -> None:
    path = script(
        tmp_path, "data = sys.stdin.buffer.read()\nsys.stdout.buffer.write(data)\nsys.stdout.flush()\nos._exit(0)"
    )
    data = bytes(range(256)) * 4096
    assert Warm(path, os.environ).run((), data, os.environ, tmp_path, 60) == (0, data, b"")


def test_it_need_not_listen(tmp_path: Path) -> None:
    path = script(tmp_path, "os.close(0)\nos._exit(0)")
    assert Warm(path, os.environ).run((), bytes(1 << 20), os.environ, tmp_path, 60) == (0, b"", b"")


def test_a_command_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    path = script(tmp_path, "open('pid', 'w').write(str(os.getpid()))\nwhile True: os.read(os.pipe()[0], 1)")
    with pytest.raises(subprocess.TimeoutExpired):
        Warm(path, os.environ).run((), b"", os.environ, tmp_path, 3)
    eventually(lambda: not alive(int((tmp_path / "pid").read_text())), "its end")


def test_only_what_would_start_alike_is_started_so() -> None:
    env = dict(os.environ)
    warm = Warm(QUEUECTL, env)
    assert warm.fits(("list",), {**env, "HOME": "/elsewhere"})
    for name in ("PYTHONPATH", "PYTHONUTF8", "LC_ALL", "LANG", "TZ", "LD_PRELOAD"):
        assert not warm.fits(("list",), {**env, name: "other"})
    assert not warm.fits(("x" * 200_000,), env)
