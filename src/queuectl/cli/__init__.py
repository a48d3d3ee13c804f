"""The command line. `main` decides how much to load, and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import sys

from queuectl.errors import QueuectlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """The `queuectl` command."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: 2>&-
        _reopen_closed()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _cannot_answer(error)
    os._exit(code)  # nothing is left to do, and tearing the interpreter down takes longer than most commands


def run(args: list[str]) -> int:
    """Carry out one command; its exit code."""
    try:
        if args[:1] == ["enqueue"]:
            from queuectl.cli import quick

            if (code := quick.enqueue(args[1:])) is not None:
                return code
        from queuectl.cli import app

        return app.run(args)
    except QueuectlError as error:
        return _complain(error.message, error.hint, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _cannot_answer(error)
    except Exception as error:
        if os.environ.get("QUEUECTL_DEBUG"):
            raise
        return _complain(
            f"this is a bug in queuectl: {type(error).__name__}: {error}",
            "run it again with QUEUECTL_DEBUG=1 and report what it prints",
            1,
        )


def _complain(message: str, hint: str, code: int) -> int:
    from queuectl.cli.render import advice, visible

    stop = "" if message.endswith(("?", ".")) else "."
    line = f"Error: {message}{stop}" + (f" Hint: {advice(hint)}" if hint else "")
    sys.stderr.write(visible(line) + "\n")
    sys.stderr.flush()
    return code


def _cannot_answer(error: OSError) -> int:
    """The output cannot be written. If its reader has simply seen enough (`list | head -1`), that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return 0
    if error.filename is not None:
        return _complain(f'cannot use "{error.filename}": {error.strerror}', "check what lies there, and its mode", 1)
    return _complain(f"cannot write the output: {error.strerror or error}", "make room, or send it elsewhere", 1)


def _reopen_closed() -> None:
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
