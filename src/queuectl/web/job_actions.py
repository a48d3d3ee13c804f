"""Doing the same to many jobs: to those that are named, or step by step to all that fit a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from queuectl.errors import Conflict, NotFound
from queuectl.jobs.job_filter import Filter
from queuectl.jobs.states import FINISHED
from queuectl.store import Store
from queuectl.web.auth import Role

CHUNK = 500  # jobs in one transaction: others want to write, too


class Deed(NamedTuple):
    """What can be done to many jobs."""

    name: str
    past: str
    role: Role
    states: tuple[str, ...]  # those in which it can be done
    others: str  # what those are to which it cannot be done
    do: Callable[[Store, Sequence[str]], object]  # all or none


UNFINISHED = ("blocked", "failed", "pending", "processing")  # in the order in which a job goes through them

DEEDS = {
    deed.name: deed
    for deed in (
        Deed("cancel", "cancelled", Role.OPERATOR, UNFINISHED, "finished already", Store.cancel),
        Deed("retry", "retried", Role.OPERATOR, ("dead",), "not dead", Store.retry),
        Deed("delete", "deleted", Role.ADMIN, FINISHED, "not finished", Store.delete),
    )
}


class Outcome(NamedTuple):
    done: int = 0
    unfit: int = 0  # in a state in which it cannot be done, or gone
    refused: str = ""  # what the store said of the last one that it refused

    @property
    def seen(self) -> int:
        return self.done + self.unfit

    def __add__(self, other: object) -> Outcome:
        assert isinstance(other, Outcome)
        return Outcome(self.done + other.done, self.unfit + other.unfit, other.refused or self.refused)


def _never() -> bool:
    return False


def apply(store: Store, deed: Deed, ids: Sequence[str], enough: Callable[[], bool] = _never) -> Outcome:
    """Do it to those of these jobs that it can be done to. What changes meanwhile is counted, and stops nothing. If
    it was `enough`, only the first have been seen, but one at least."""
    ids = list(dict.fromkeys(ids))
    states = store.views.states(ids)
    fit = [id for id in ids if states.get(id) in deed.states]
    try:
        if fit:
            deed.do(store, fit)
        return Outcome(len(fit), len(ids) - len(fit))
    except (Conflict, NotFound) as refused:
        if len(ids) == 1:
            return Outcome(unfit=1, refused=refused.message)
    outcome = Outcome()
    for id in ids:  # all or none is what the store does: so one by one
        outcome += apply(store, deed, [id])
        if enough():
            break
    return outcome


def step(
    store: Store, deed: Deed, wanted: Filter, before: int | None, enough: Callable[[], bool]
) -> tuple[Outcome, int | None]:
    """Do it to the next jobs that fit, the newest first. What came of it, and where to go on; None: that was all."""
    found = store.views.listing.matches(wanted, before, CHUNK)
    outcome = apply(store, deed, found.ids, enough)
    return outcome, found.next if outcome.seen == len(found.ids) else found.places[outcome.seen - 1]
