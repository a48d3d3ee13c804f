"""What the server says no to before the store is asked, and how any error is put to a program."""

from __future__ import annotations

import http
from typing import Any

from starlette.responses import JSONResponse

from queuectl.errors import OutcomeUnknown, QueuectlError

RETRY_AFTER = 5  # seconds


class Malformed(QueuectlError):
    http_status = 400


class Unauthorized(QueuectlError):
    http_status = 401


class Forbidden(QueuectlError):
    http_status = 403


class UnknownPage(QueuectlError):
    http_status = 404


class WrongMethod(QueuectlError):
    http_status = 405


class TooSlow(QueuectlError):
    http_status = 408


class TooLarge(QueuectlError):
    http_status = 413


class WrongKind(QueuectlError):
    http_status = 415


class Misdirected(QueuectlError):
    http_status = 421


class TooBusy(QueuectlError):
    http_status = 503


def as_problem(error: QueuectlError) -> dict[str, Any]:
    """RFC 9457, with the hint that the command line would print."""
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": http.HTTPStatus(error.http_status).phrase,
        "status": error.http_status,
        "detail": _sayable(error.message),
        "hint": _sayable(error.hint),
    }
    if error.index is not None:
        problem["index"] = error.index
    if isinstance(error, OutcomeUnknown):
        problem["outcome"] = "unknown"
    return problem


def _sayable(text: str) -> str:
    """It may quote half a character, which JSON can bring and nobody can print."""
    return text.encode("utf-8", "replace").decode()


def headers_of(error: QueuectlError) -> dict[str, str]:
    match error.http_status:
        case 401:
            return {"WWW-Authenticate": 'Bearer realm="queuectl"'}
        case 429:  # the connection counts against a limit, too
            return {"Retry-After": str(RETRY_AFTER), "Connection": "close"}
        case 503:
            return {"Retry-After": str(RETRY_AFTER)}
    return {}


def problem(error: QueuectlError) -> JSONResponse:
    return JSONResponse(
        as_problem(error), error.http_status, headers_of(error), media_type="application/problem+json"
    )
