"""What an operation of the API is: a row of the table, and what its function is given and gives back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from queuectl.web.api.schemas import Schema
from queuectl.web.auth import Role, User


class Param(NamedTuple):
    name: str
    schema: Schema
    help: str = ""
    place: str = "query"  # or "header"


@dataclass(frozen=True)
class Call:
    """What somebody asks for. All of it fits the operation's schemas."""

    user: User
    path: Mapping[str, str]
    query: Mapping[str, Any] = field(default_factory=dict)  # and headers; those that were given, or have a default
    body: Any = None
    raw: bytes = b""  # the body as it came


class Reply(NamedTuple):
    """An answer that is more than a value."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


@dataclass(frozen=True)
class Operation:
    """One row. `do` takes a store and a call, and gives a value for JSON, or a Reply; or, if it is `live`, it takes
    the request and the call, is a coroutine that holds no store, and gives a response."""

    method: str
    path: str  # below remote.ROOT
    role: Role
    summary: str
    do: Callable[..., Any]
    answer: Schema | None  # None: not JSON
    params: tuple[Param, ...] = ()
    body: Schema | None = None
    status: int = 200
    more: Mapping[int, str] = field(default_factory=dict)  # other statuses it may have, and what they say
    live: bool = False
    example: str = ""  # of a body, for a page that shows it

    @property
    def name(self) -> str:
        return self.do.__name__.strip("_")

    @property
    def group(self) -> str:
        return self.path.split("/")[1]

    @property
    def in_path(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def changes(self) -> bool:
        return self.method != "GET"
