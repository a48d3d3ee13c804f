"""Hooks in the store. A notification is a job, enqueued in the very transaction that ends the run it tells of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from queuectl.errors import Conflict, NotFound, QueuectlError, did_you_mean
from queuectl.hooks import hook
from queuectl.hooks.hook import Ended, Hook
from queuectl.jobs import job_spec
from queuectl.store import insert_jobs, steps
from queuectl.store import write_queries as sql

if TYPE_CHECKING:
    from queuectl.jobs.job_spec import NewJob
    from queuectl.store.engine import Params, Row, Transaction
    from queuectl.store.store import Store


class Hooks:
    """All that happens to hooks, and what there is to know of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store.engine

    # -- the worker's side -------------------------------------------------------------------------------

    def tell(self, tx: Transaction, settled: Sequence[Params]) -> bool:
        """Runs have ended in this transaction: enqueue what hooks want to hear of them. Is it anything?"""
        hooks = [_hook(row) for row in tx.rows(sql.HOOKS)]
        states = {event for one in hooks for event in one.events}
        seqs = [row["seq"] for row in settled if row["state"] in states]
        if not seqs:
            return False
        jobs = {}
        for ended in (Ended(*row) for row in tx.rows(sql.ENDED, {"seqs": seqs})):
            for one in hooks:
                if hook.wants(one, ended):
                    jobs[hook.job_id(one, ended)] = hook.notification(one, hook.told(ended, tx.now))
        if jobs:
            for id, _ in tx.rows(sql.STATES_OF, {"ids": list(jobs)}):
                del jobs[id]
            insert_jobs.insert(tx, self._engine, list(jobs.values()), list(jobs))
        return bool(jobs)

    # -- what names them ---------------------------------------------------------------------------------

    def refuse_unknown(self, tx: Transaction, jobs: Sequence[NewJob]) -> None:
        """Raise if one of these jobs names a hook that is not there."""
        known = self._names(tx)
        for index, job in enumerate(jobs):
            for name in job.notify:
                if name not in known:
                    raise Conflict(f'there is no hook "{name}"', _instead(name, known), index)

    def check(self, names: Iterable[str]) -> None:
        """Raise if one of these hooks is not there."""
        with self._engine.read() as tx:
            known = self._names(tx)
        for name in names:
            if name not in known:
                raise _unknown(name, known)

    def _names(self, tx: Transaction) -> list[str]:
        return [name for (name,) in tx.rows(sql.HOOK_NAMES)]

    # -- the operator's side -----------------------------------------------------------------------------

    @steps.repeat_on_deadlock
    def add(self, name: str, events: Iterable[str], **fields: Any) -> Hook:
        """Make a hook (the fields of `hook.make`), which hears of what ends from now on; refused if there is one of
        this name. A command runs in this folder, if the workers can be expected to have it."""
        if fields.get("command") is not None:
            fields["cwd"] = self._engine.default_cwd() or (None if self._engine.leased else "/")
        with self._engine.write() as tx:
            new = hook.make(name, events, tx.now, **fields)
            if not tx.run(sql.ADD_HOOK, _row(new)):
                hint = f"choose another name, or remove it first: queuectl hook remove {name}"
                raise Conflict(f'there is a hook "{name}" already', hint)
            self._store.audit(tx, "hook", [name], f"added, on {' '.join(new.events)}")
        return new

    @steps.repeat_on_deadlock
    def remove(self, names: Sequence[str]) -> None:
        """Forget all of these hooks or none. What they have not been told yet, they will not be."""
        with self._engine.write() as tx:
            for name in sorted(set(names)):
                self._locked(tx, name)
            for name in set(names):
                tx.run(sql.REMOVE_HOOK, {"name": name})
            self._store.audit(tx, "hook", sorted(set(names)), "removed")

    @steps.repeat_on_deadlock
    def pause(self, names: Sequence[str], paused: bool, reason: str | None = None) -> list[Hook]:
        """Let these hooks rest, or go on. What ends while they rest they do not hear of."""
        with self._engine.write() as tx:
            for name in sorted(set(names)):  # in one order, so that nobody waits for somebody who waits for him
                self._locked(tx, name)
                tx.run(sql.PAUSE_HOOK, {"name": name, "paused": paused, "reason": reason})
            self._store.audit(tx, "hook", sorted(set(names)), reason or ("paused" if paused else "resumed"))
            return [self._locked(tx, name) for name in dict.fromkeys(names)]

    def try_out(self, name: str) -> str:
        """Enqueue a notification of nothing; its id."""
        with self._engine.read() as tx:
            found, now = self._found(tx, sql.GET_HOOK, name), tx.now
        [id] = self._store.enqueue([hook.notification(found, hook.example(found, now))])
        return id

    def _locked(self, tx: Transaction, name: str) -> Hook:
        return self._found(tx, sql.LOCK_HOOK, name)

    def _found(self, tx: Transaction, statement: str, name: str) -> Hook:
        rows = tx.rows(statement, {"name": job_spec.text("hook", name)})
        if not rows:
            raise _unknown(name, self._names(tx))
        return _hook(rows[0])

    # -- views -------------------------------------------------------------------------------------------

    def all(self) -> list[Hook]:
        """Every hook, in the order of their names."""
        with self._engine.read() as tx:
            return [_hook(row) for row in tx.rows(sql.HOOKS)]

    def get(self, name: str) -> Hook:
        with self._engine.read() as tx:
            return self._found(tx, sql.GET_HOOK, name)


def _unknown(name: str, known: list[str]) -> QueuectlError:
    return NotFound(f'there is no hook "{name}"', _instead(name, known))


def _instead(name: str, known: list[str]) -> str:
    return did_you_mean(name, known) if known else "make one: queuectl hook add"


def _hook(row: Row) -> Hook:
    fields = dict(zip(sql.HOOK_FIELDS, row, strict=True))
    fields["events"] = tuple(fields["events"].split())
    for flag in ("only_named", "allow_private", "paused"):
        fields[flag] = bool(fields[flag])
    return Hook(**fields)


def _row(new: Hook) -> dict[str, Any]:
    return {name: getattr(new, name) for name in sql.HOOK_FIELDS} | {"events": " ".join(new.events)}
