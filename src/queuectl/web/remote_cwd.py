"""Where a job runs that comes from afar: by the API, or from a form."""

from __future__ import annotations

import os
from typing import Any

from queuectl.errors import InvalidInput
from queuectl.store import Store


def from_afar(store: Store, fields: Any) -> dict[str, Any]:
    """The fields of such a job: no folder of the server is meant that was not named."""
    if not isinstance(fields, dict):
        raise InvalidInput("a job is a JSON object", 'for example {"command": "true"}')
    cwd = fields.get("cwd")
    if isinstance(cwd, str) and not cwd.startswith("/"):
        raise InvalidInput(f'"{cwd[:80]}" is no whole path', "begin it with /: folders of the server are not yours")
    return {**fields, "cwd": home(store)} if cwd is None else fields


def home(store: Store) -> str | None:
    """Where it runs if it does not say it. The folder that the server was started in means nothing to it; where there
    are many machines, neither does a home: it is left to the worker."""
    folder = os.path.expanduser("~")
    return None if store.engine.leased or not os.path.isabs(folder) or not os.path.isdir(folder) else folder
