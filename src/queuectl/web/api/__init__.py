"""The HTTP API: `/api/v1`. Its operations stand in `table`; this makes doors of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from queuectl.client.http_client import ROOT
from queuectl.errors import InvalidInput, did_you_mean
from queuectl.system import strict_json
from queuectl.web.api.openapi import document
from queuectl.web.api.operation import Call, Operation, Reply
from queuectl.web.api.operations import OPERATIONS
from queuectl.web.api.validation import check, from_text
from queuectl.web.auth import Role
from queuectl.web.http_errors import Malformed, WrongKind
from queuectl.web.rendering import View, answer, ask_of
from queuectl.web.routing import Door, desk, user_of


def _door(operation: Operation) -> Door:
    def do(request: Request) -> Response:
        call = _call(operation, request)
        changes = operation.method != "GET"
        with desk(request).stores.lend(call.user.name if changes else None) as store:
            found = operation.do(store, call)
        reply = found if isinstance(found, Reply) else Reply(found)
        if reply.status == 204:
            return Response(status_code=204)
        return JSONResponse(reply.body, reply.status, dict(reply.headers))

    async def do_live(request: Request) -> Response:
        response: Response = await operation.do(request, _call(operation, request))
        return response

    return Door(ROOT + operation.path, do_live if operation.live else do, operation.role, [operation.method])


# -- what was asked for ----------------------------------------------------------------------------------


def _call(operation: Operation, request: Request) -> Call:
    raw: bytes = request.state.body
    body = None if operation.body is None else _body(operation.body, request.headers.get("content-type", ""), raw)
    return Call(user_of(request), request.path_params, _params(operation, request), body, raw)


def _params(operation: Operation, request: Request) -> dict[str, Any]:
    """Every parameter that was given or has a default."""
    known = {param.name: param for param in operation.params if param.place == "query"}
    given = request.query_params
    for name in given:
        if name not in known:
            hint = did_you_mean(name, list(known)) if known else "it takes none"
            raise InvalidInput(f'unknown parameter "{name[:80]}"', hint)
        if len(given.getlist(name)) > 1:
            raise InvalidInput(f'the parameter "{name}" is given twice', "keep one of them")
    values = {}
    for param in operation.params:
        source = given if param.place == "query" else request.headers
        if param.name in source:
            values[param.name] = from_text(param.name, source[param.name], param.schema)
        elif "default" in param.schema:
            values[param.name] = param.schema["default"]
    return values


def _body(schema: dict[str, Any], kind: str, raw: bytes) -> Any:
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise WrongKind("the body must be JSON", "send Content-Type: application/json")
    try:
        body = strict_json.parse(raw.decode())
    except UnicodeDecodeError:
        raise Malformed("the body is not valid UTF-8", "send UTF-8") from None
    except InvalidInput as error:
        raise Malformed(error.message, error.hint) from None
    check("the body", body, schema)
    return body


# -- the document, and a page of it ----------------------------------------------------------------------


def _openapi(request: Request) -> Response:
    return JSONResponse(document())


def _page(request: Request) -> Response:
    groups: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        groups.setdefault(operation.group, []).append(operation)
    address = f"{request.url.scheme}://{request.headers['host']}"
    shows = {"groups": groups, "document": document(), "root": ROOT, "address": address}
    return answer(request, View("api.html", shows), ask_of(request, user_of(request)))


ROUTES: tuple[Door, ...] = (
    Door(ROOT, _page, Role.VIEWER),
    Door(f"{ROOT}/openapi.json", _openapi, Role.VIEWER),
    *(_door(operation) for operation in OPERATIONS),
)
