"""A Python that has loaded what every command needs of other people's code, and is forked for each.

To load click takes a command longer than all it does itself, and psycopg three times as long. Of queuectl nothing is
loaded in advance: a forked command reads the installed script, and from there on does what a new one would. The
interpreter, its settings and its surroundings are those of a new one too: what they depend on is compared by `fits`.
"""

from __future__ import annotations

import atexit
import gc
import io
import itertools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# What an interpreter looks at when it starts, and the C library when it is first asked.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ")
MOST = 100_000  # bytes; the kernel, not we, should say that a command is too long
CLOSE_TO_ALL = 1 << 16
_numbers = itertools.count()  # an id() may be given to another object while the first one's process still listens


class Warm:
    """Starts commands as `subprocess.run` does, in a fraction of its time. Ends with the process that made it."""

    def __init__(self, script: str, env: Mapping[str, str]) -> None:
        self._needs = _at_start(env)
        self._address = f"\0queuectl-warm-{os.getpid()}-{next(_numbers)}"  # without a file
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, __file__, script, str(listener.fileno())],
                env={**self._needs, "PATH": os.defpath},  # nothing by which a test knows what belongs to it
                stdin=subprocess.PIPE,  # at its end it ends
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )
        atexit.register(self._process.communicate)

    def fits(self, args: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """Would a new interpreter start like this one?"""
        return self._needs == _at_start(env) and sum(map(len, args)) < MOST

    def run(
        self,
        args: tuple[str, ...],
        data: bytes,
        env: Mapping[str, str],
        cwd: Path,
        patience: float,
        stdout: int | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Its exit code as a Popen has it, and what it said; not on standard output, if that is given."""
        ends: dict[int, bytearray] = {}
        pipes = [os.pipe() for _ in range(3)]
        if stdout is not None:
            os.dup2(stdout, pipes[1][1])
        with socket.socket(socket.AF_UNIX) as line, selectors.DefaultSelector() as selector:
            line.connect(self._address)
            request = json.dumps([args, dict(env), str(cwd)]).encode()
            socket.send_fds(line, [len(request).to_bytes(8, "big")], [pipes[0][0], pipes[1][1], pipes[2][1]])
            line.sendall(request)
            for fd in (pipes[0][0], pipes[1][1], pipes[2][1]):
                os.close(fd)
            given, out, err = pipes[0][1], pipes[1][0], pipes[2][0]
            os.set_blocking(given, False)
            selector.register(given, selectors.EVENT_WRITE)
            for fd in (out, err):
                ends[fd] = bytearray()
                selector.register(fd, selectors.EVENT_READ)
            end = time.monotonic() + patience
            try:
                while selector.get_map():
                    ready = selector.select(max(0, end - time.monotonic()))
                    if not ready and time.monotonic() >= end:
                        raise subprocess.TimeoutExpired(list(args), patience, bytes(ends[out]), bytes(ends[err]))
                    for key, _ in ready:
                        if key.fd == given:
                            data = _feed(given, data)
                            over = not data
                        else:
                            chunk = os.read(key.fd, 65536)
                            ends[key.fd] += chunk
                            over = not chunk
                        if over:
                            selector.unregister(key.fd)
                            os.close(key.fd)
                line.settimeout(max(0.001, end - time.monotonic()))
                code = int(line.makefile("rb").readline())
            except BaseException:
                for key in selector.get_map().values():
                    os.close(key.fd)
                raise  # and whoever held the other end sees that nobody listens
        return code, bytes(ends[out]), bytes(ends[err])


def _feed(fd: int, data: bytes) -> bytes:
    """Write what fits; what is left."""
    try:
        return data[os.write(fd, data) :] if data else b""
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""  # it has heard enough


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


# -- the other side --------------------------------------------------------------------------------------


def serve(script: str, listener: socket.socket) -> None:
    """Fork for each who calls and say how it ended, until whoever started this is gone."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the handle that tells of its end
    while True:
        lines = [line.fileno() for _, line in running.values()]
        ready, _, _ = select.select([0, listener.fileno(), *running, *lines], [], [])
        if 0 in ready:
            return
        for handle, (_, line) in running.items():
            if line.fileno() in ready:  # whoever asked has given up
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in running.keys() & set(ready):
            pid, line = running.pop(handle)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with line, suppress(OSError):  # whoever asked may have given up
                line.sendall(f"{code}\n".encode())
            os.close(handle)
        if listener.fileno() in ready:
            line, _ = listener.accept()
            size, fds, _, _ = socket.recv_fds(line, 8, 3)
            with line.makefile("rb") as source:
                args, env, cwd = json.loads(source.read(int.from_bytes(size, "big")))
            pid = os.fork()
            if not pid:
                become(script, args, env, cwd, fds)
            for fd in fds:
                os.close(fd)
            running[os.pidfd_open(pid)] = pid, line


def become(script: str, args: list[str], env: dict[str, str], cwd: str, fds: list[int]) -> None:
    """Be the command, as if it had just been started."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, CLOSE_TO_ALL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        buffer: Any = open(old.fileno(), f"{mode}b", closefd=False)  # noqa: SIM115
        buffer.raw.name = old.name
        new: Any = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=name == "stderr")
        new.mode = mode
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(script)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = script
    try:
        exec(compile(Path(script).read_text(), script, "exec"), vars(main))
    except BaseException:  # it ends itself, whatever happens, unless it is asked to show its errors
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    import dataclasses
    import datetime
    import inspect
    import typing
    import uuid

    import apsw
    import click
    import psycopg

    LOADED = (dataclasses, datetime, inspect, typing, uuid, apsw, click, psycopg)
    gc.collect()
    gc.freeze()  # what is never looked at need not be copied
    assert not [name for name in sys.modules if name.partition(".")[0] == "queuectl"]
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
