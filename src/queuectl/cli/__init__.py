"""The command line. `main` decides how much to load, and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import sys

from queuectl.cli import streams
from queuectl.errors import QueuectlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """The `queuectl` command."""
    streams.prepare()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        failed = _cannot_answer(error)
        code = code or failed
    if unsaid := streams.unsaid():
        from queuectl.cli.render import visible

        sys.stderr.write(visible(unsaid) + "\n")
    os._exit(code)  # nothing is left to do, and tearing the interpreter down takes longer than most commands


def run(args: list[str]) -> int:
    """Carry out one command; its exit code."""
    try:
        if args[:1] == ["enqueue"]:
            from queuectl.cli import fast_enqueue

            if (code := fast_enqueue.enqueue(args[1:])) is not None:
                return code
        from queuectl.cli import app

        return app.run(args)
    except QueuectlError as error:
        return _complain(error.message, error.hint, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, streams.OutputLost) as error:
        return _cannot_answer(error)
    except OSError as error:
        what = "a system call failed: " if error.filename is None else f'cannot use "{error.filename}": '
        return _complain(f"{what}{error.strerror or error}", "check what lies there, its mode, and the limits", 1)
    except MemoryError:
        return _complain("there is not enough memory", "free some, or raise the limit (ulimit -v)", 1)
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
    return _complain(f"cannot write the output: {error.strerror or error}", "make room, or send it elsewhere", 1)
