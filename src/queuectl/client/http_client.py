"""A queue behind a server (`queuectl serve`), over HTTP: what `Queue("http://…")` speaks. Standard library only."""

from __future__ import annotations

import http.client
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from queuectl.client.shared_connection import SharedConnection
from queuectl.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    QueuectlError,
    StoreUnavailable,
    TimedOut,
    TooManyRequests,
    no_such_job,
)
from queuectl.jobs.model import Job
from queuectl.system import times

TOKEN_VARIABLE = "QUEUECTL_TOKEN"
TOKEN_FILE = "….serve/token"
ROOT = "/api/v1"
PATIENCE = 30.0  # seconds for an answer
LONG_POLL = 20.0  # seconds that the server waits with an answer, if there is nothing to say; less than the above
CROWDED = 2.0  # seconds between two questions to a server that cannot let one more client wait
STALE = 5.0  # seconds after which a connection is not trusted with what must not be said twice
PAGE = 500
LARGEST = 64 << 20  # bytes of an answer
BROKEN_OFF = "the connection broke off"

T = TypeVar("T")

KINDS: Mapping[int, type[QueuectlError]] = {
    400: InvalidInput,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    429: TooManyRequests,
    504: TimedOut,
}


class Page(NamedTuple):
    """Some jobs, and where the next ones are."""

    jobs: list[Job]
    next: str | None


class Remote:
    """What `Queue` does, done by a server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._connect = partial(Server, url, token)
        self._shared = SharedConnection(self._connect)

    def _ask(
        self, method: str, path: str, read: Callable[[Any], T], body: Any = None, headers: Mapping[str, str] = {}
    ) -> T:
        return self._shared.call(lambda server: server.ask(method, path, read, body, headers))

    def enqueue(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        wanted = [_wanted(job) for job in jobs]
        # Named, so that an answer that was lost can be asked for again.
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        if not wanted:
            return []
        if len(wanted) == 1:
            return self._ask("POST", "/jobs", lambda found: [Job.from_json(found)], wanted[0], headers)
        return self._ask("POST", "/jobs", partial(_jobs, count=len(wanted)), {"jobs": wanted}, headers)

    def get(self, id: str) -> Job:
        return self._ask("GET", _path(id), Job.from_json)

    def jobs(self, state: str | None, queue: str | None, tag: str | None, limit: int) -> Iterator[Job]:
        given = {"state": state, "queue": queue, "tag": tag}
        params = {name: value for name, value in given.items() if value is not None}
        left = math.inf if limit < 0 else limit
        first = self._page(params, left) if left else Page([], None)  # a slip is told at once
        return self._pages(first, params, left)

    def _pages(self, page: Page, params: Mapping[str, str], left: float) -> Iterator[Job]:
        while True:
            yield from page.jobs
            left -= len(page.jobs)
            if page.next is None or left <= 0:
                return
            page = self._page({**params, "cursor": page.next}, left)

    def _page(self, params: Mapping[str, str], left: float) -> Page:
        return self._ask("GET", "/jobs?" + urlencode({**params, "limit": min(PAGE, left)}), _page)

    def wait(self, ids: Sequence[str], timeout: float | None) -> list[Job]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        found = [self.get(id) for id in ids]
        # By a connection of its own: an answer takes its time, and other threads want theirs.
        with closing(self._connect()) as server:
            for number, job in enumerate(found):
                while not found[number].finished:
                    left = deadline - time.monotonic()
                    path = f"{_path(job.id)}/wait?timeout={max(0, min(left, LONG_POLL)):.3f}"
                    try:
                        found[number] = server.ask("GET", path, _job)
                    except TooManyRequests:  # only those that make the server wait are refused
                        time.sleep(max(0, min(left, CROWDED)))
                        found[number] = server.ask("GET", _path(job.id), Job.from_json)
                    if left <= 0 and not found[number].finished:
                        late = sum(not self.get(job.id).finished for job in found)
                        what = f"{late} of {len(ids)} jobs have not finished in time"
                        raise TimedOut(what, f"look at job {job.id}")
        return found

    def cancel(self, ids: Sequence[str]) -> None:
        if ids:
            self._ask("POST", "/jobs/cancel", _changed, {"ids": list(ids)})

    def retry(self, ids: Sequence[str]) -> None:
        if ids:
            self._ask("POST", "/jobs/retry", _changed, {"ids": list(ids)})

    def counts(self) -> dict[str, int]:
        return self._ask("GET", "/stats", _counts)

    def close(self) -> None:
        self._shared.close()


def _path(id: str) -> str:
    if not id or "\0" in id:  # the server takes neither for an address
        raise no_such_job(id)
    return f"/jobs/{quote(id, safe='')}"


def _wanted(job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job as they are sent. `09:00` is meant here, and may be another time there; `5m` is not."""
    fields = dict(job)
    for name in ("run_at", "available_at", "next_run_at"):
        if isinstance(moment := fields.get(name), str) and times.parse_delay(moment) is None:
            fields[name] = times.iso(times.parse_moment(moment, times.now_ms()))
    return fields


# -- what is in an answer; a KeyError, TypeError or ValueError if it is not ---------------------------------


def _job(found: Any) -> Job:
    return Job.from_json(found["job"])


def _jobs(found: Any, count: int | None = None) -> list[Job]:
    if not isinstance(jobs := found["jobs"], list) or count not in (None, len(jobs)):
        raise ValueError
    return [Job.from_json(job) for job in jobs]


def _page(found: Any) -> Page:
    if not isinstance(next := found["next"], str | None):
        raise ValueError
    return Page(_jobs(found), next)


def _changed(found: Any) -> None:
    if type(found["done"]) is not int:
        raise ValueError


def _counts(found: Any) -> dict[str, int]:
    counts: dict[str, int] = found["jobs"]
    if not isinstance(counts, dict) or not counts or not all(type(count) is int for count in counts.values()):
        raise ValueError
    return counts


class Server:
    """One connection, kept open and made anew when it is gone."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if not parts.hostname or port == -1 or parts.query or parts.fragment or parts.username:
            raise InvalidInput(f'"{parts._replace(netloc=parts.hostname or "").geturl()}" is no address of a server',
                               "write http://host:port")  # fmt: skip
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=PATIENCE)
        self._root = parts.path.rstrip("/") + ROOT
        self._name = f"{parts.scheme}://{parts.netloc}"
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        if not (self._token.isascii() and self._token.isprintable()) or " " in self._token:
            raise InvalidInput("this cannot be a token", "it has printable ASCII characters, and no spaces")
        self._used = 0.0
        self._asking = False
        self.commits = 0

    def roll_back(self) -> None:
        """After an interrupted exchange the next answer would be that of the last question."""
        if self._asking:
            self.close()
            self._asking = False

    def close(self) -> None:
        self._connection.close()

    def close_in_child(self) -> None:
        """Nothing is sent by that; the connection itself is the parent's."""
        self.close()

    def ask(
        self, method: str, path: str, read: Callable[[Any], T], body: Any = None, headers: Mapping[str, str] = {}
    ) -> T:
        """What `read` makes of the answer's JSON; a problem is raised as the error that it is."""
        data = None if body is None else _json(body)
        sent = {"Accept": "application/json", **headers}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        if data is not None:
            sent["Content-Type"] = "application/json"
        again = method == "GET" or "Idempotency-Key" in headers
        if not again and time.monotonic() - self._used > STALE:
            self.close()
        lost: StoreUnavailable | None = None
        try:
            status, kind, answer = self._exchange(method, self._root + path, data, sent)
        except (OSError, http.client.HTTPException) as error:
            lost = self._lost(error, method)
            if not again or isinstance(error, TimeoutError):
                raise lost from None
            try:
                status, kind, answer = self._exchange(method, self._root + path, data, sent)
            except (OSError, http.client.HTTPException) as second:
                raise self._lost(second, method) from None
        try:
            return read(self._understood(method, status, kind, answer))
        except (KeyError, TypeError, ValueError):
            raise self._strange(method, status) from None
        except StoreUnavailable:
            if isinstance(lost, OutcomeUnknown):  # the second was refused, the first may have been carried out
                raise lost from None
            raise

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        self._asking = True
        try:
            if self._connection.sock is None:
                self._connection.connect()
            self.commits += method != "GET"  # from here on it may be carried out
            self._connection.request(method, path, data, dict(headers))
            response = self._connection.getresponse()
            answer = self._read(response, method)
        except BaseException:
            self._connection.close()
            raise
        self._asking = False
        self._used = time.monotonic()
        return response.status, response.headers.get_content_type(), answer

    def _read(self, response: http.client.HTTPResponse, method: str) -> bytes:
        try:
            answer = response.read(LARGEST + 1)
        except (http.client.IncompleteRead, ValueError, OverflowError):  # these two: a chunk of less than nothing
            raise ConnectionError(BROKEN_OFF) from None
        if len(answer) > LARGEST:
            kind = StoreUnavailable if method == "GET" else OutcomeUnknown
            what = f"the answer of {self._name} is larger than {LARGEST >> 20} MiB"
            raise kind(what, "ask for less at once: a smaller limit")
        if response.length:  # still to come: `read` does not mind
            raise ConnectionError(BROKEN_OFF)
        return answer

    def _lost(self, error: Exception, method: str) -> StoreUnavailable:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if method == "GET" or isinstance(error, ConnectionRefusedError):
            return StoreUnavailable(f"cannot reach {self._name}: {why}", "does it run? start it: queuectl serve")
        return OutcomeUnknown(f"the answer of {self._name} was lost: {why}", "look if it has happened")

    def _understood(self, method: str, status: int, kind: str, answer: bytes) -> Any:
        try:
            found = json.loads(answer) if kind in ("application/json", "application/problem+json") else None
        except (ValueError, RecursionError):
            found = None
        if status < 300 and found is not None:
            return found
        if not isinstance(found, dict) or not isinstance(found.get("detail"), str):
            raise self._strange(method, status)
        raise self._problem(status, found)

    def _strange(self, method: str, status: int) -> StoreUnavailable:
        """A proxy that refuses (4xx) has not passed it on; with any other answer, queuectl may have been asked."""
        kind = StoreUnavailable if method == "GET" or 300 <= status < 500 else OutcomeUnknown
        look = ", and look if it has happened" if kind is OutcomeUnknown else ""
        return kind(f"{self._name} answered {status}, not like queuectl", f"check the address{look}")

    def _problem(self, status: int, found: dict[str, Any]) -> QueuectlError:
        message, hint = found["detail"], str(found.get("hint", ""))
        if status == 401:
            given = (
                f"give another: token=…, or set {TOKEN_VARIABLE}; queuectl serve says which file has it: {TOKEN_FILE}"
            )
            message = f"{self._name} {'does not know this token' if self._token else 'wants a token'}"
            hint = given if self._token else given.replace("another", "it")
        unavailable = OutcomeUnknown if found.get("outcome") == "unknown" else StoreUnavailable
        kind = KINDS.get(status, unavailable if status >= 500 else QueuectlError)
        error = kind(message, hint)
        error.index = found.get("index")
        return error


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"this cannot be sent as JSON: {error}", "use text, numbers, lists and mappings") from None
