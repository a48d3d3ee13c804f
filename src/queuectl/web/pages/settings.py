"""The settings of the queue, seen by running workers at once."""

from __future__ import annotations

from queuectl.errors import InvalidInput
from queuectl.settings import SETTINGS, Number, find
from queuectl.store import Store
from queuectl.web.rendering import Ask, Done, Fields, View, given


def show(store: Store, ask: Ask) -> View:
    return _view(store)


def _view(store: Store, name: str = "", filled: str = "", wrong: InvalidInput | None = None) -> View:
    """`filled`: what somebody has written for the setting of this name."""
    values = {key: _written(value) for key, value in store.config().items()}
    shows = {"settings": SETTINGS.values(), "values": values, "written": _written}
    status = wrong.http_status if wrong else 200
    return View("settings.html", {**shows, "name": name, "filled": filled, "wrong": wrong}, status)


def _written(value: Number) -> str:
    """1000000000, not 1e+09; 3600, not 3600.0."""
    return str(int(value)) if value == int(value) else repr(value)


def change(store: Store, ask: Ask, fields: Fields) -> Done | View:
    name, text = given(fields, "name"), given(fields, "value")
    find(name)
    try:
        key, value = store.set_config(name, text)
    except InvalidInput as wrong:
        return _view(store, name, text, wrong)
    return Done(f"{key} = {_written(value)}", to="/settings")


def unset(store: Store, ask: Ask, fields: Fields) -> Done:
    key, value = store.unset_config(given(fields, "name"))
    return Done(f"{key} = {_written(value)} (the default)", to="/settings")
