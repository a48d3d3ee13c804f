"""Everything that can go wrong for a user, each with its exit code and HTTP status."""

from __future__ import annotations


class QueuectlError(Exception):
    """What happened, and what to do about it."""

    exit_code = 1
    http_status = 500
    index: int | None = None  # of several new jobs, the one that it is about

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def at(self, place: str) -> QueuectlError:
        """The same error, said of a place: `line 17: …`."""
        return type(self)(f"{place}: {self.message}", self.hint)

    def of_job(self, index: int) -> QueuectlError:
        """The same error, said of one of several new jobs."""
        error = self.at(f"jobs[{index}]")
        error.index = index
        return error


class InvalidInput(QueuectlError):
    exit_code = 2
    http_status = 422


class NotFound(QueuectlError):
    exit_code = 3
    http_status = 404


def no_such_job(text: str) -> NotFound:
    return NotFound(f'there is no job "{text}"', "see the jobs with queuectl list")


class Conflict(QueuectlError):
    """What is stored stands against it."""

    exit_code = 4
    http_status = 409

    def __init__(self, message: str, hint: str = "", index: int | None = None) -> None:
        super().__init__(message, hint)
        self.index = index


class Duplicate(Conflict):
    """An id is taken."""


class StoreUnavailable(QueuectlError):
    """The database cannot serve now; the same command may work later."""

    exit_code = 5
    http_status = 503


class Locked(StoreUnavailable):
    """Another transaction holds a lock on a row or table that is needed. Nothing has happened."""


class Deadlock(Locked):
    """The server ended this transaction because it and another one waited for each other. Nothing has happened, and
    the same transaction succeeds as soon as the other one has ended."""


class TooManyRequests(StoreUnavailable):
    """A server has reached a limit: other requests must end first. Nothing has happened."""

    http_status = 429


class OutcomeUnknown(StoreUnavailable):
    """The answer to a commit was lost: it has happened, or it has not."""


class Outdated(StoreUnavailable):
    """Only a newer program understands this queue; waiting does not help this one."""


class Untrusted(StoreUnavailable, OSError):
    """A file or folder that others could have put there, or can write to. Where a file that cannot be used is no
    reason to stop (a log), it is an OSError like any other."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.strerror = message


class StoreReplaced(StoreUnavailable):
    """Another database lies where ours was; what we hold open is nobody's any more."""


class Denied(QueuectlError):
    """A server does not know who asks, or does not let him do this."""

    http_status = 403


class TimedOut(QueuectlError):
    exit_code = 124
    http_status = 504


def did_you_mean(word: str, known: list[str]) -> str:
    """A hint naming the closest known word, or all of them if none is close."""
    import difflib  # only ever needed on the way to an error

    close = difflib.get_close_matches(word, known, n=1)
    return f'did you mean "{close[0]}"?' if close else "known are: " + ", ".join(known)
