"""The same done to many jobs: those that are named, all or none, or those that match a search, as far as it can be
done. A request does not go on for ever: it says where the next one goes on."""

from __future__ import annotations

import time
from typing import Any

from queuectl.errors import InvalidInput
from queuectl.jobs import job_filter
from queuectl.jobs.job_filter import Filter
from queuectl.store import Store
from queuectl.web import cursors
from queuectl.web.api.jobs import whole_id
from queuectl.web.api.operation import Call
from queuectl.web.job_actions import DEEDS, Deed, Outcome, step

BUDGET = 5.0  # seconds


def cancel_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Cancel several jobs: these, all or none, or all that match."""
    return _apply(store, call, DEEDS["cancel"])


def retry_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Run several dead jobs again: these, all or none, or all that match."""
    return _apply(store, call, DEEDS["retry"])


def delete_jobs(store: Store, call: Call) -> dict[str, Any]:
    """Delete several finished jobs: these, all or none, or all that match."""
    return _apply(store, call, DEEDS["delete"])


def _apply(store: Store, call: Call, deed: Deed) -> dict[str, Any]:
    match call.body:
        case {"ids": [*ids], **rest} if not rest:
            named = [whole_id(store, id) if deed.name == "delete" else store.views.resolve(id) for id in ids]
            chosen = list(dict.fromkeys(named))
            deed.do(store, chosen)
            return _answer(len(chosen), len(chosen))
        case {"q": str(words), "dry_run": True, **rest} if not rest:
            return _count(store, *_meant(deed, words))
        case {"q": str(words), **rest} if rest.keys() <= {"dry_run"} or rest.keys() <= {"cursor"}:
            return to_matching(store, deed, *_meant(deed, words), call.body.get("cursor"))
    raise InvalidInput("which jobs?", 'give {"ids": […]}, or {"q": "search words"}, perhaps with "dry_run": true')


def _meant(deed: Deed, words: str) -> tuple[Filter, tuple[str, ...]]:
    """Jobs that fit this and are in one of these states: each of these can be looked for along an index."""
    wanted = job_filter.parse(words)
    if wanted == Filter():  # an empty variable in a script must not be the end of all jobs
        raise InvalidInput("an empty search means every job", "name at least a state, for example state:completed")
    if wanted.state is None:
        return wanted, deed.states
    if wanted.state not in deed.states:
        raise InvalidInput(f"what is {wanted.state} cannot be {deed.past}: {deed.others}", "leave out state:")
    return wanted, (wanted.state,)


def _count(store: Store, wanted: Filter, states: tuple[str, ...]) -> dict[str, Any]:
    deadline = time.monotonic() + BUDGET
    matched = 0
    for state in states:
        n, all_seen = store.views.listing.count(wanted.but(state=state), max(0.0, deadline - time.monotonic()))
        matched += n
        if not all_seen:
            return _answer(matched, 0, more=True)
    return _answer(matched, 0)


def to_matching(
    store: Store, deed: Deed, wanted: Filter, states: tuple[str, ...], cursor: str | None, budget: float = BUDGET
) -> dict[str, Any]:
    """Do it to all of them, state after state, until the time is up."""
    deadline = time.monotonic() + budget

    def late() -> bool:
        return time.monotonic() >= deadline

    total = Outcome()
    first, before = (0, None) if cursor is None else _place(cursor, states)
    for state in states[first:]:
        while True:
            outcome, before = step(store, deed, wanted.but(state=state), before, late)
            total += outcome
            if before is None:
                break
            if late():
                return _answer(total.seen, total.done, True, f"{state}.{cursors.sealed(before)}")
    return _answer(total.seen, total.done)


def _place(cursor: str, states: tuple[str, ...]) -> tuple[int, int]:
    """Among which of the states, and where."""
    state, _, place = cursor.partition(".")
    if state not in states:
        raise InvalidInput("this cursor is none of ours", "begin without one")
    return states.index(state), cursors.unsealed(place)


def _answer(matched: int, done: int, more: bool = False, next: str | None = None) -> dict[str, Any]:
    return {"matched": matched, "done": done, "more": more, "next": next}
