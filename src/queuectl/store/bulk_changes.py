"""Cancel, retry and delete jobs. A few that are named are changed together or not at all, in one transaction; very
many are checked first and then changed in steps, each of which is whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuectl.errors import Conflict, QueuectlError, no_such_job
from queuectl.jobs import dependency_rules, log_files
from queuectl.jobs.states import FINISHED
from queuectl.store import dependencies, limits, steps, uniqueness
from queuectl.store import write_queries as sql
from queuectl.store.audit import Entry

if TYPE_CHECKING:
    from queuectl.store.engine import Params, Transaction
    from queuectl.store.store import BeforeCommit, Store

MOST_ROWS = 2000  # that go with the jobs which are deleted in one transaction


class Found(NamedTuple):
    seq: int
    state: str
    run: int
    worker: str | None


def _named(tx: Transaction, ids: Sequence[str], statement: str = sql.LOCK_JOBS) -> dict[str, Found]:
    """These jobs, which nobody else changes now; those that are gone are left out."""
    found = {id: Found(*fields) for id, *fields in tx.rows(statement, {"ids": list(ids)})}
    return {id: found[id] for id in ids if id in found}


def _refuse_missing(ids: Iterable[str], found: Mapping[str, Found]) -> None:
    for id in ids:
        if id not in found:
            raise no_such_job(id)


def _in_steps(ids: Sequence[str], past: str, act: Callable[[Sequence[str]], object]) -> None:
    """Do it to one part after the other. An error says what has been done before."""
    done = 0
    for part in steps.parts(ids):
        try:
            act(part)
        except QueuectlError as error:
            if not done:
                raise
            before = f"{done:,} of {len(ids):,} jobs were {past} before that"
            raise type(error)(f"{error.message}; {before}", error.hint) from error
        done += len(part)


# -- cancel ----------------------------------------------------------------------------------------------


def cancel(
    store: Store, ids: Sequence[str], skip_finished: bool = False, before_commit: BeforeCommit | None = None
) -> dict[str, str]:
    step = _Cancel(store, skip_finished)
    if len(ids) <= steps.TOGETHER:
        states = step(ids, before_commit)
    else:
        with store.engine.read() as tx:
            found = _named(tx, ids, sql.JOBS_NAMED)
            if not skip_finished:
                _refuse_missing(ids, found)
                for id, job in found.items():
                    _refuse_finished(id, job.state)
            order = _children_first(tx, found)
        states = {}
        try:
            _in_steps(order, "cancelled", lambda part: states.update(step(part)))
        finally:
            _announce(store, step.news)
        return {id: states[id] for id in ids if id in states}
    _announce(store, step.news)
    return states


def _announce(store: Store, left_to_workers: bool) -> None:
    """Tell workers what was changed, also if an error has ended it half-way."""
    store.engine.announce()
    if left_to_workers:
        store.work_off_all()


def _refuse_finished(id: str, state: str) -> None:
    if state in FINISHED:
        raise Conflict(f'job "{id}" is already {state}', "only a job that has not finished can be cancelled")


class _Cancel:
    """Cancels jobs, each call in one transaction."""

    def __init__(self, store: Store, skip_finished: bool) -> None:
        self._store = store
        self._entry = Entry(store.actor, "cancel")
        self._skip_finished = skip_finished
        self.news = False  # is there anything for workers in it?

    @steps.repeat_on_deadlock
    def __call__(self, ids: Sequence[str], before_commit: BeforeCommit | None = None) -> dict[str, str]:
        with self._store.engine.write() as tx:
            keys = [key for (key,) in tx.rows(sql.KEYS_OF, {"ids": list(ids)})]
            limits.lock_keys(tx, keys)
            found = _named(tx, ids)
            late = {id: job for id, job in found.items() if job.state in FINISHED}
            refused = bool(late) and not self._skip_finished
            if not self._skip_finished:
                _refuse_missing(ids, found)
            if refused:
                _note(tx, "cancel_refused", {job: f"cancel refused: already {job.state}" for job in late.values()})
            chosen = {} if refused else {id: job for id, job in found.items() if id not in late}
            running = self._apply(tx, list(chosen.values()))
            limits.follow(tx, keys)
            entry = self._entry.add(tx, list(chosen))
            if before_commit:
                before_commit(tx, ids)
        self._entry = entry
        for id, job in late.items() if refused else ():
            _refuse_finished(id, job.state)
        return {id: "processing" if job in running else "cancelled" for id, job in chosen.items()}

    def _apply(self, tx: Transaction, jobs: Sequence[Found]) -> set[Found]:
        """Cancel these, which are locked; those that run, and are to be ended."""
        running = [job for job in jobs if job.state == "processing"]
        waiting = [job for job in jobs if job.state != "processing"]
        tx.each(sql.CANCEL_WAITING, [{"seq": job.seq, "run": job.run, "now": tx.now} for job in waiting])
        tx.each(sql.REQUEST_CANCEL, [{"seq": job.seq, "run": job.run, "now": tx.now} for job in running])
        _note(tx, "cancelled", dict.fromkeys(waiting, "cancelled"))
        _note(tx, "cancel_requested", dict.fromkeys(running, "cancel requested"))
        self.news |= dependencies.cancelled(tx, [job.seq for job in waiting])
        return set(running)


def _note(tx: Transaction, kind: str, reasons: Mapping[Found, str]) -> None:
    notes: list[Params] = [
        {"seq": job.seq, "run": job.run, "worker": job.worker, "now": tx.now, "kind": kind, "reason": reason}
        for job, reason in reasons.items()
    ]
    tx.each(sql.RECORD_NOTE, notes)


def _children_first(tx: Transaction, found: Mapping[str, Found]) -> list[str]:
    """In an order in which no job is released by the cancellation of another, to be cancelled only later itself."""
    ids = {job.seq: id for id, job in found.items()}
    children: dict[int, list[int]] = {}
    level = list(ids)
    while level:
        below = set()
        for parent, child in tx.rows(sql.CHILDREN_OF, {"parents": level}):
            children.setdefault(parent, []).append(child)
            below.add(child)
        level = sorted(below - children.keys() - ids.keys())
    return [ids[seq] for seq in dependency_rules.children_first(list(ids), children) if seq in ids]


# -- retry -----------------------------------------------------------------------------------------------


def retry(
    store: Store, ids: Sequence[str] | None, spacing: float = 0, before_commit: BeforeCommit | None = None
) -> list[str]:
    wanted = _all_dead(store) if ids is None else list(dict.fromkeys(ids))
    step = _Retry(store, spacing, strict=ids is not None)
    retried: list[str] = []
    if len(wanted) <= steps.TOGETHER:
        retried += step(wanted, before_commit)
    else:
        with store.engine.read() as tx:
            found = _named(tx, wanted, sql.JOBS_NAMED)
            if ids is not None:
                _refuse_missing(ids, found)
                _refuse_living(found)
            uniqueness.refuse_second(tx, [job.seq for job in found.values()])
        try:
            _in_steps(wanted, "retried", lambda part: retried.extend(step(part)))
        finally:
            _announce(store, step.news)
        return retried
    _announce(store, step.news)
    return retried


def _all_dead(store: Store) -> list[str]:
    with store.engine.read() as tx:
        return [id for (id,) in tx.rows(sql.DEAD_JOBS)]


def _refuse_living(found: Mapping[str, Found]) -> None:
    for id, job in found.items():
        if job.state != "dead":
            hint = "only jobs in the dead letter queue can be retried"
            raise Conflict(f'job "{id}" is {job.state}, not dead', hint)


class _Retry:
    """Retries jobs, each call in one transaction. The jobs of all calls are due one after the other."""

    def __init__(self, store: Store, spacing: float, strict: bool) -> None:
        self._store = store
        self._entry = Entry(store.actor, "retry", f"{spacing:g} s apart" if spacing else "")
        self._spacing = spacing
        self._strict = strict  # else those that are not dead any more are left out
        self._began: int | None = None
        self._number = 0
        self.news = False  # is there anything for workers in it?

    @steps.repeat_on_deadlock
    def __call__(self, ids: Sequence[str], before_commit: BeforeCommit | None = None) -> list[str]:
        with self._store.engine.write() as tx:
            found = _named(tx, ids)
            if self._strict:
                _refuse_missing(ids, found)
                _refuse_living(found)
            chosen = {id: job for id, job in found.items() if job.state == "dead"}
            uniqueness.refuse_second(tx, [job.seq for job in chosen.values()])
            began = tx.now if self._began is None else self._began
            due = [began + round((self._number + n) * self._spacing * 1000) for n in range(len(chosen))]
            rows: list[Params] = [
                {"seq": job.seq, "now": tx.now, "run_at": run_at}
                for job, run_at in zip(chosen.values(), due, strict=True)
            ]
            tx.each(sql.RETRY_DEAD, rows)
            reason = "retried from the dead letter queue"
            _note(tx, "retried", {job._replace(worker=None): reason for job in chosen.values()})
            self.news |= dependencies.revive(tx, {job.seq: id for id, job in chosen.items()})
            entry = self._entry.add(tx, list(chosen))
            if before_commit:
                before_commit(tx, ids)
        self._began, self._number, self._entry = began, self._number + len(chosen), entry
        return list(chosen)


# -- delete ----------------------------------------------------------------------------------------------


def delete(store: Store, ids: Sequence[str] | None, states: Collection[str], hint: str) -> int:
    store.work_off_all()  # what has children that are still to be told stays
    entry = Entry(store.actor, "delete")
    wanted = _all_dead(store) if ids is None else list(dict.fromkeys(ids))
    strict = ids is not None
    if strict and len(wanted) > steps.TOGETHER:
        with store.engine.read() as tx:
            _refuse_undeletable(tx, wanted, _named(tx, wanted, sql.JOBS_NAMED), states, hint)
    deleted = 0

    @steps.repeat_on_deadlock
    def delete_some(left: Sequence[str]) -> tuple[list[str], bool]:
        nonlocal entry
        with store.engine.write() as tx:
            found = _named(tx, left)
            if strict:
                _refuse_undeletable(tx, left, found, states, hint)
            ready = _with_told_children(tx, found)
            gone, more = _remove(tx, [job.seq for job in ready.values() if job.state in states])
            grown = entry.add(tx, gone)
        entry = grown
        return gone, more

    def step(part: Sequence[str]) -> None:
        nonlocal deleted
        left, more = list(part), True
        while left and more:
            try:
                gone, more = delete_some(left)
            except QueuectlError as error:
                if not deleted:
                    raise
                before = f"{deleted:,} of {len(wanted):,} jobs were deleted before that"
                raise type(error)(f"{error.message}; {before}", error.hint) from error
            log_files.remove(store.engine.log_dir, gone)
            deleted += len(gone)
            left = [id for id in left if id not in set(gone)]
            if left and more:
                steps.pause()

    for part in [wanted] if len(wanted) <= steps.TOGETHER else steps.parts(wanted):
        step(part)
    return deleted


def _with_told_children(tx: Transaction, found: Mapping[str, Found]) -> dict[str, Found]:
    """Those whose children have all been told of their end; the others cannot be deleted yet."""
    waiting = {id for (id,) in tx.rows(sql.BEING_TOLD, {"ids": list(found)})} if found else set()
    return {id: job for id, job in found.items() if id not in waiting}


def _refuse_undeletable(
    tx: Transaction, ids: Sequence[str], found: Mapping[str, Found], states: Collection[str], hint: str
) -> None:
    _refuse_missing(ids, found)
    for id, job in found.items():
        if job.state not in states:
            allowed = "dead" if len(states) == 1 else "finished"
            raise Conflict(f'job "{id}" is {job.state}, not {allowed}', hint)
    for (id,) in tx.rows(sql.BEING_TOLD, {"ids": list(ids)}):
        raise Conflict(f'job "{id}" has children that have yet to be told of its end', "try again in a moment")


def prune(store: Store, states: Sequence[str], older_than: float, limit: int) -> int:
    more = True
    ids: list[str] = []
    while more and not ids:
        ids, more = _prune_some(store, states, older_than, limit)
        log_files.remove(store.engine.log_dir, ids)
        if ids or more:
            steps.pause()
    return len(ids)


@steps.repeat_on_deadlock
def _prune_some(store: Store, states: Sequence[str], older_than: float, limit: int) -> tuple[list[str], bool]:
    with store.engine.write() as tx:
        before = tx.now - round(older_than * 1000)
        found = tx.rows(sql.LOCK_PRUNABLE, {"states": list(states), "before": before, "limit": limit})
        ids, more = _remove(tx, [seq for (seq,) in found])
        store.audit(tx, "prune", ids)
    return ids, more


def _remove(tx: Transaction, seqs: Sequence[int]) -> tuple[list[str], bool]:
    """Delete the first of these jobs, which are locked, as many as one transaction can take with their history; their
    ids, and whether there are more."""
    chosen, more = within_reach(tx, seqs)
    return [id for (id,) in tx.rows(sql.DELETE_FINISHED, {"seqs": chosen})], more


def within_reach(tx: Transaction, seqs: Sequence[int]) -> tuple[list[int], bool]:
    """As many of these jobs as one transaction can delete with their history, and whether there are more. Of a very
    long history a part is deleted instead."""
    rows = 0
    chosen: list[int] = []
    weights = {seq: (events, others) for seq, events, others in tx.rows(sql.WEIGHTS, {"seqs": list(seqs)})}
    for seq in seqs:
        events, others = weights[seq]
        if events > MOST_ROWS and not chosen:
            tx.run(sql.FORGET_EVENTS, {"seq": seq, "limit": MOST_ROWS})
            return [], True
        rows += 1 + events + others
        if chosen and rows > MOST_ROWS:
            break
        chosen.append(seq)
    return chosen, len(chosen) < len(seqs)
