"""The same done to many jobs: those that are named, all or none, or those that match a search, as far as it can be
done. A request does not go on for ever: it says if there is more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from queuectl import search
from queuectl.errors import Conflict, InvalidInput, NotFound
from queuectl.search import Filter
from queuectl.states import FINISHED
from queuectl.store import Store
from queuectl.web.api.jobs import whole_id
from queuectl.web.api.operation import Call

AT_ONCE = 500
BUDGET = 5.0  # seconds
UNFINISHED = ("blocked", "pending", "failed", "processing")


class Deed(NamedTuple):
    do: Callable[[Store, Sequence[str]], object]
    states: tuple[str, ...]  # those in which it can be done
    words: str


CANCEL = Deed(lambda store, ids: store.cancel(ids), UNFINISHED, "cancelled: it has finished")
RETRY = Deed(lambda store, ids: store.retry(ids), ("dead",), "retried: it is not dead")
DELETE = Deed(lambda store, ids: store.delete(ids), tuple(FINISHED), "deleted: it has not finished")


def cancel_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Cancel several jobs: these, all or none, or all that match."""
    return _apply(store, call, CANCEL)


def retry_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Run several dead jobs again: these, all or none, or all that match."""
    return _apply(store, call, RETRY)


def delete_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Delete several finished jobs: these, all or none, or all that match."""
    return _apply(store, call, DELETE)


def _apply(store: Store, call: Call, deed: Deed) -> dict[str, Any]:
    match call.body:
        case {"ids": [*ids], **rest} if not rest:
            named = [whole_id(store, id) if deed is DELETE else store.views.resolve(id) for id in ids]
            chosen = list(dict.fromkeys(named))
            deed.do(store, chosen)
            return _answer(len(chosen), len(chosen), False)
        case {"q": str(words), **rest} if rest.keys() <= {"dry_run"}:
            return _to_matching(store, search.parse(words), deed, bool(call.body.get("dry_run")))
    raise InvalidInput("which jobs?", 'give {"ids": […]}, or {"q": "search words"}, perhaps with "dry_run": true')


def _to_matching(store: Store, wanted: Filter, deed: Deed, dry_run: bool) -> dict[str, Any]:
    if wanted == Filter():  # an empty variable in a script must not be the end of all jobs
        raise InvalidInput("an empty search means every job", "name at least a state, for example state:completed")
    if wanted.state is not None and wanted.state not in deed.states:
        raise InvalidInput(f"what is {wanted.state} cannot be {deed.words}", "leave out state:")
    deadline = time.monotonic() + BUDGET
    matched = done = 0
    for state in deed.states if wanted.state is None else (wanted.state,):
        fitting = wanted.but(state=state)
        if dry_run:
            n, all_seen = store.views.listing.count(fitting, max(0.0, deadline - time.monotonic()))
            matched += n
            if not all_seen:
                return _answer(matched, 0, True)
            continue
        before: int | None = None
        while True:
            ids, before = store.views.listing.matches(fitting, before, AT_ONCE)
            matched += len(ids)
            done += _as_far_as_possible(store, ids, deed)
            if before is None:
                break
            if time.monotonic() > deadline:
                return _answer(matched, done, True)
    return _answer(matched, done, False)


def _as_far_as_possible(store: Store, ids: list[str], deed: Deed) -> int:
    """All at once; if one of them stands against it, each by itself. How many."""
    if not ids:
        return 0
    try:
        deed.do(store, ids)
        return len(ids)
    except (Conflict, NotFound):  # it changed since we looked, or something else has its unique key
        done = 0
    for id in ids:
        try:
            deed.do(store, [id])
            done += 1
        except (Conflict, NotFound):
            pass
    return done


def _answer(matched: int, done: int, more: bool) -> dict[str, Any]:
    return {"matched": matched, "done": done, "more": more}
