"""The OpenAPI 3.1 document, made from the table of operations."""

from __future__ import annotations

import functools
from typing import Any

from queuectl import __version__
from queuectl.client.http_client import ROOT
from queuectl.web.api.operation import Operation
from queuectl.web.api.operations import IN_PATH, JOB_ID, OPERATIONS
from queuectl.web.api.schemas import SCHEMAS, ref

REASONS = {
    400: "It cannot be read",
    401: "Nobody we know",
    403: "It takes another role",
    404: "There is no such thing",
    408: "It took too long to arrive",
    409: "What is there stands against it",
    413: "It is too large",
    415: "It is not application/json",
    422: "It means nothing",
    429: "Too many streams and waiting requests are open: try again later",
    503: "The queue cannot be reached now: try again",
}
FINE = "Done"


@functools.cache
def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(ROOT + operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "queuectl",
            "version": __version__,
            "description": "A durable background job queue for shell commands. Who may enqueue can run any command.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "description": " ".join((operation.do.__doc__ or "").split()),
        "x-role": operation.role.word,
        "parameters": [*_in_path(operation), *_others(operation)],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.body}}}
    return described


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": JOB_ID if operation.group == "jobs" and operation.method != "DELETE" else IN_PATH[name],
        }
        for name in operation.in_path
    ]


def _others(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": param.name, "in": param.place, "schema": param.schema, "description": param.help}
        for param in operation.params
    ]


def errors_of(operation: Operation) -> list[int]:
    """The refusals that any such operation may answer with."""
    found = {401, 403, 422, 503}
    found |= {429} if operation.live else set()
    found |= {404} if operation.in_path else set()
    found |= {408, 409, 413} if operation.changes else set()
    found |= {400, 415} if operation.body is not None else set()
    return sorted(found)


def _responses(operation: Operation) -> dict[str, Any]:
    problem = {"content": {"application/problem+json": {"schema": ref("Problem")}}}
    fine: dict[str, Any] = {}
    if operation.answer is not None:
        fine = {"content": {"application/json": {"schema": operation.answer}}}
    elif operation.status != 204:
        fine = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    found: dict[int, Any] = {status: {"description": REASONS[status], **problem} for status in errors_of(operation)}
    found[operation.status] = {"description": FINE, **fine}
    for status, why in operation.more.items():
        found[status] = {"description": why, **(fine if status < 400 else problem)}
    return {str(status): found[status] for status in sorted(found)}
