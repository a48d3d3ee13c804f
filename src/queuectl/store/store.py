"""The queue itself. Every method is one transaction: it happens whole or not at all."""

from __future__ import annotations

import time

from queuectl import settings
from queuectl.errors import Conflict, Duplicate, OutcomeUnknown, StoreUnavailable
from queuectl.jobs import job_spec
from queuectl.jobs.states import FINISHED
from queuectl.store import batches, claim_settle, dependencies, insert_jobs, limits, steps
from queuectl.store import write_queries as sql
from queuectl.system import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from queuectl.jobs.job_spec import NewJob
    from queuectl.jobs.lifecycle import Settlement
    from queuectl.jobs.model import Claim, Report, Rules, Tick
    from queuectl.metrics.run_stats import Tally
    from queuectl.queues.selection import Turns
    from queuectl.settings import Config, Number
    from queuectl.store.engine import Engine, Transaction
    from queuectl.store.hooks import Hooks
    from queuectl.store.metrics import Figures
    from queuectl.store.schedules import Schedules
    from queuectl.store.views import Views

    BeforeCommit = Callable[[Transaction, Sequence[str]], object]

PROMOTED_AT_ONCE = 1000
PRUNED_AT_ONCE = 1000
RECOVERED_AT_ONCE = 100
WORK_OFF_FOR = 2.0  # seconds that whoever has caused it stays to tell very many children


class Store:
    """All that changes a queue. What only reads it is in `views`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.actor: str | None = None  # on whose behalf: what he does is recorded

    @property
    def views(self) -> Views:
        from queuectl.store.views import Views  # here: a plain enqueue must not load the model

        return Views(self.engine)

    @property
    def schedules(self) -> Schedules:
        from queuectl.store.schedules import Schedules

        return Schedules(self)

    @property
    def figures(self) -> Figures:
        from queuectl.store.metrics import Figures

        return Figures(self.engine)

    @property
    def hooks(self) -> Hooks:
        from queuectl.store.hooks import Hooks

        return Hooks(self)

    def close(self) -> None:
        self.engine.close()

    # -- enqueue -----------------------------------------------------------------------------------------

    @steps.repeat_on_deadlock
    def enqueue(
        self,
        jobs: Sequence[NewJob],
        progress: Callable[[int], None] | None = None,
        skipped: Callable[[str], object] | None = None,
        submission: tuple[str, str] | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> list[str]:
        """Store all of them or none, and return their ids. When this returns they are on disk. Those that were to be
        skipped, because another job has their key, are told to `skipped`; the other's id stands in their place.

        A `submission` (its key, and a fingerprint of all it asks for) happens once: asked again, it brings the same
        ids, and stores nothing. `before_commit` is called with the ids in the transaction that has stored them, to
        read what the caller wants to know of them: a read after the commit could fail, and the jobs are stored.
        """
        for _ in range(3):
            # Drawn ids in their own order: a database files neighbours faster than strangers.
            drawn = iter(sorted(job_spec.new_ids(sum(not job.id for job in jobs))))
            ids = [job.id or next(drawn) for job in jobs]
            there: dict[int, str] = {}
            try:
                with self.engine.write() as tx:
                    known = insert_jobs.answered(tx, *submission) if submission else None
                    if known is None:
                        there = self._insert(tx, jobs, ids, progress)
                    ids = known if known is not None else [there.get(index, id) for index, id in enumerate(ids)]
                    if submission and known is None:
                        tx.run(sql.ANSWER_SUBMISSION, {"key": submission[0], "ids": " ".join(ids)})
                    if before_commit:
                        before_commit(tx, ids)
            except Duplicate:
                with self.engine.read() as tx:
                    insert_jobs.refuse_taken(tx, jobs)  # else a drawn id met an old one: again
                continue
            except OutcomeUnknown as lost:
                new = [id for index, id in enumerate(ids) if index not in there]
                if new and not self._is_stored(new[0], lost):  # all of them are, or none
                    raise
            self.engine.announce()
            if skipped:
                for id in there.values():
                    skipped(id)
            return ids
        raise Conflict("no free id could be drawn", "try again")

    def _insert(
        self, tx: Transaction, jobs: Sequence[NewJob], ids: Sequence[str], progress: Callable[[int], None] | None
    ) -> dict[int, str]:
        """Store jobs on behalf of the actor; which of them were left out, and which job has their key instead."""
        if any(job.notify for job in jobs):
            self.hooks.refuse_unknown(tx, jobs)
        there = insert_jobs.insert(tx, self.engine, jobs, ids, progress)
        if self.actor:
            self.audit(tx, "enqueue", [id for index, id in enumerate(ids) if index not in there])
        return there

    def _is_stored(self, id: str, lost: OutcomeUnknown) -> bool:
        try:
            with self.engine.read() as tx:
                return bool(tx.rows(sql.STATES_OF, {"ids": [id]}))
        except StoreUnavailable:
            raise lost from None

    # -- the worker's side -------------------------------------------------------------------------------

    def probe(self) -> None:
        """Raise StoreUnavailable if the queue cannot be read and written just now."""
        with self.engine.write() as tx:
            tx.run(sql.TRY_TO_WRITE)

    @steps.repeat_on_deadlock
    def register(
        self, worker: str, pid: int, host: str, manager_pid: int, queues: Sequence[str], concurrency: int
    ) -> float:
        """Enter a worker; the seconds within which it must show a sign of life."""
        with self.engine.write() as tx:
            lease = self._config(tx)["lease_timeout"]
            tx.run(
                sql.REGISTER,
                {
                    "id": worker,
                    "pid": pid,
                    "pid_started": procfs.start_time(pid),
                    "place": self.engine.place,
                    "host": host,
                    "manager_pid": manager_pid,
                    "queues": " ".join(queues),
                    "concurrency": concurrency,
                    "now": tx.now,
                    "expires": tx.now + round(lease * 1000),
                },
            )
            return lease

    @steps.repeat_on_deadlock
    def unregister(self, worker: str) -> None:
        with self.engine.write() as tx:
            tx.run(sql.UNREGISTER, {"id": worker})

    @steps.repeat_on_deadlock
    def record(self, tally: Tally) -> None:
        """Store what is left of a worker's tally when it leaves; while it works, a tick takes that along."""
        with self.engine.write() as tx:
            tx.alone_with(claim_settle.TALLIES, patiently=True)
            claim_settle.record(tx, tally)

    @steps.repeat_on_deadlock
    def heartbeat(self, worker: str) -> float | None:
        """Show that this worker lives; the seconds for which that will do. None if it has been given up for lost."""
        with self.engine.write() as tx:
            lease = self._config(tx)["lease_timeout"]
            expires = tx.now + round(lease * 1000)
            return lease if tx.run(sql.HEARTBEAT, {"id": worker, "now": tx.now, "expires": expires}) else None

    def next_expiry(self) -> float | None:
        """Seconds until the promise of a worker on another machine runs out, if there are any such workers."""
        if not self.engine.leased:
            return None
        with self.engine.read() as tx:
            [(soonest,)] = tx.rows(sql.NEXT_EXPIRY, {"place": self.engine.place})
            return None if soonest is None else (soonest - tx.now) / 1000

    def tick(
        self,
        worker: str,
        ended: Sequence[tuple[Claim, Settlement, Report]] = (),
        slots: int = 0,
        turns: Turns | None = None,
        running: Collection[tuple[int, int]] | None = None,
        tally: Tally | None = None,
        at_once: bool = False,
    ) -> Tick:
        """Settle what ended, lease up to `slots` due jobs, and bring the news: one transaction for all of it. A tally
        of runs that were settled before is taken along, unless another worker is just storing his.

        After an exchange that failed nobody knows if it has happened: given the (seq, run) of the runs that go on,
        what the store holds for this worker besides is handed out again.

        Raises Locked if others hold a lock on a row that must be written: then nothing has happened. `at_once`: that
        is not waited for.
        """
        from queuectl.jobs.model import Claim, Tick

        with self.engine.write(at_once) as tx:
            news = tx.rows(sql.NEWS, {"id": worker})
            nothing = ("now", None, None, None, False, None, True, False)
            stop, due, cancelled, set_to, ruled, fires, hooked, undone = news[0] if news else nothing
            limits.lock_keys(tx, (claim.key for claim, _, _ in ended))
            cancels = {(int(seq), int(run)) for seq, _, run in _pairs(cancelled, ":")}
            settled, refused = claim_settle.settle(tx, worker, ended, cancels)
            told = self.hooks.tell(tx, settled) if hooked and settled else False
            released = claim_settle.follow(tx, settled, ended) or told
            died = any(row["state"] == "dead" for row in settled)  # too many of a batch, perhaps
            gate = limits.Gate(tx, bool(ruled), bool(undone) or died)
            claims: list[Claim] = []
            if running is not None and news:
                held = tx.rows(sql.HELD_BY, {"worker": worker})
                claims = [Claim(*row[:-1]) for row in held if (row[0], row[2]) not in running]
            again_at = [row["run_at"] for row in settled if not row["finished_at"]]
            due = min(again_at if due is None else [due, *again_at], default=None)
            if slots > len(claims) and not stop:
                if due is not None and due <= tx.now:
                    tx.run(sql.PROMOTE_DUE, {"now": tx.now, "limit": PROMOTED_AT_ONCE})
                    due = tx.rows(sql.NEXT_DUE)[0][0]
                claims += claim_settle.claim(tx, worker, slots - len(claims), turns, gate, self.engine.log_place)
                due = min((moment for moment in (due, gate.again_at) if moment is not None), default=None)
            if ruled:
                claims = [gate.with_rules(claim) for claim in claims]
                released |= gate.left_room([claim for claim, _, _ in ended], claims)
            tick = Tick(
                claims=claims,
                refused=refused,
                cancels=cancels,
                stop=stop,
                tallied=claim_settle.record(tx, tally) if tally else False,
                given_up=not news,
                due_in=None if due is None or len(claims) >= slots else max(0, due - tx.now) / 1000,
                fire_in=None if fires is None else max(0, fires - tx.now) / 1000,
                undone=bool(undone),
                config=settings.effective([(key, value) for key, _, value in _pairs(set_to, "=")]),
            )
        if released:
            self.engine.announce()
        return tick

    @steps.repeat_on_deadlock
    def report(self, worker: str, said: Sequence[tuple[Claim, str]]) -> set[int]:
        """Save the progress of running jobs; ignore jobs that this worker no longer holds. Return the seqs of all
        that others have not locked: what was said of those is dealt with."""
        with self.engine.write() as tx:
            free = {seq for (seq,) in tx.rows(sql.LOCK_REPORTING, {"seqs": [claim.seq for claim, _ in said]})}
            by = {"state": "processing", "worker": worker, "now": tx.now}
            rows = [{"seq": claim.seq, "run": claim.run, "report": text, **by} for claim, text in said]
            tx.each(sql.REPORT, [row for row in rows if row["seq"] in free])
        return free

    def attendance(self) -> tuple[list[list[str]], set[str]]:
        """The queues that each living worker serves (words for `selection.serves`), and the paused queues."""
        with self.engine.read() as tx:
            paused = {name for (name,) in tx.rows(sql.PAUSED)}
            told = [
                words.split() for words, *holder in tx.rows(sql.SERVED) if self.engine.is_alive(tuple(holder), tx.now)
            ]
        return told, paused

    # -- recovery ----------------------------------------------------------------------------------------

    def lost_workers(self, everywhere: bool = True) -> dict[str, list[Claim]]:
        """Workers that died without a word, or only those of this machine, and the runs that died with them."""
        from queuectl.jobs.model import Claim

        with self.engine.read() as tx:
            dead = [
                id
                for id, pid, pid_started, place, expires_at in tx.rows(sql.HOLDERS)
                if (everywhere or self.engine.is_here(place))
                and not self.engine.is_alive((id, pid, pid_started, place, expires_at), tx.now)
            ]
            return {id: [Claim(*row[:-1]) for row in tx.rows(sql.HELD_BY, {"worker": id})] for id in dead}

    def holders(self, tx: Transaction) -> dict[str, bool]:
        """Whoever is registered or holds a job, and if he lives."""
        return {holder[0]: self.engine.is_alive(holder, tx.now) for holder in tx.rows(sql.HOLDERS)}

    def recover(
        self, worker: str, only: Claim | None = None
    ) -> tuple[str | None, list[tuple[Claim, Settlement, Report]]] | None:
        """Put back what a lost worker was running, up to RECOVERED_AT_ONCE of its jobs or `only` one, and strike it
        off when it holds no other; the order it had, and the runs. The caller has ended its processes. None if it has
        shown itself in the meantime: then it is left alone. Raises Locked if others hold a lock on a row that must be
        written; on `only` one job that is not waited for."""
        from queuectl.jobs import lifecycle
        from queuectl.jobs.model import Claim, Report

        lost, cancels, order = [], set(), None
        with self.engine.write(at_once=only is not None) as tx:
            config = self._config(tx)
            held = [Claim(*row[:-1]) for row in tx.rows(sql.HELD_BY, {"worker": worker})]
            chosen = [claim for claim in held if only is None or claim.seq == only.seq][:RECOVERED_AT_ONCE]
            limits.lock_keys(tx, (claim.key for claim in chosen))
            for stop, *holder in tx.rows(sql.LOCK_WORKER, {"id": worker}):
                order = stop
                if self.engine.is_alive(tuple(holder), tx.now):
                    return None
            seqs = [claim.seq for claim in chosen]
            for *fields, cancel_requested in tx.rows(sql.LOCK_HELD, {"worker": worker, "seqs": seqs}):
                claim = Claim(*fields)
                if cancel_requested:
                    cancels.add((claim.seq, claim.run))
                end = lifecycle.after_loss(claim, worker, bool(cancel_requested), config)
                lost.append((claim, end, Report(duration_ms=max(0, tx.now - claim.started_at))))
            settled, _ = claim_settle.settle(tx, worker, lost, cancels)
            told = self.hooks.tell(tx, settled)
            released = claim_settle.follow(tx, settled, lost) or told
            if len(chosen) == len(held):
                tx.run(sql.UNREGISTER, {"id": worker})
        if released:
            self.engine.announce()
        return order, lost

    # -- the operator's side -----------------------------------------------------------------------------

    def cancel(
        self, ids: Sequence[str], skip_finished: bool = False, before_commit: BeforeCommit | None = None
    ) -> dict[str, str]:
        """Cancel all of these jobs or none, or those that have not finished; the state of each. A running one is
        ended by its worker: its state is still `processing`. Very many are cancelled in steps: see `bulk_changes`."""
        from queuectl.store import bulk_changes

        return bulk_changes.cancel(self, ids, skip_finished, before_commit)

    def retry(
        self, ids: Sequence[str] | None = None, spacing: float = 0, before_commit: BeforeCommit | None = None
    ) -> list[str]:
        """Give dead jobs a new life, with no attempts spent: all of these or none, or every one if None; one after
        the other with so many seconds between them. Very many are retried in steps: see `bulk_changes`."""
        from queuectl.store import bulk_changes

        return bulk_changes.retry(self, ids, spacing, before_commit)

    @steps.repeat_on_deadlock
    def work_off(self) -> bool:
        """Do a step of what was too much for the transactions that caused it: telling the children of jobs that have
        ended, and cancelling the rest of a batch. False if nothing is left, or others are at it."""
        with self.engine.write() as tx:
            more = dependencies.work_off(tx) or batches.work_off(tx)
        if more:
            self.engine.announce()
        return more

    def work_off_all(self, seconds: float = WORK_OFF_FOR) -> None:
        """Do so for a while, if there is anything. Workers do the rest; what caused it has happened."""
        deadline = time.monotonic() + seconds
        try:
            with self.engine.read() as tx:
                [(undone,)] = tx.rows(sql.ANY_UNDONE)
            while undone and self.work_off() and time.monotonic() < deadline:
                steps.pause()
        except StoreUnavailable:
            pass

    @steps.repeat_on_deadlock
    def stop_workers(self, ids: Sequence[str], how: str) -> None:
        """Tell workers to leave: `drain` after their running jobs, `now` ending those and putting them back."""
        with self.engine.write() as tx:
            tx.run(sql.ORDER_STOP, {"ids": list(ids), "stop": how})
            self.audit(tx, "stop", ids, how)
        self.engine.announce()

    @steps.repeat_on_deadlock
    def change_queue(self, name: str, **fields: object) -> Rules:
        """Pause or limit a queue, or say how its jobs are retried (the fields of `Rules`); what holds from now on."""
        with self.engine.write() as tx:
            rules = limits.change(tx, name, **fields)
            self.audit(tx, "queue", [name], ", ".join(f"{field} = {value}" for field, value in fields.items()))
        self.engine.announce()
        if "per_key" in fields:
            self._let_go(name)
        return rules

    def _let_go(self, queue: str) -> None:
        """Let go of what may run by the new limit, step by step. What cannot be done now, the end of a run will do:
        the change has happened."""
        after: str | None = ""
        try:
            while after is not None:
                with self.engine.write() as tx:
                    after = limits.let_go(tx, queue, after)
                self.engine.announce()
                if after is not None:
                    steps.pause()
        except StoreUnavailable:
            pass

    def config(self) -> Config:
        """Every setting's value in force."""
        with self.engine.read() as tx:
            return self._config(tx)

    @steps.repeat_on_deadlock
    def set_config(self, name: str, text: str) -> tuple[str, Number]:
        """Set it for everyone; running workers see it at once."""
        setting = settings.find(name)
        value = setting.parse(text)
        with self.engine.write() as tx:
            tx.run(sql.SET_CONFIG, {"key": setting.name, "value": repr(value)})
            self.audit(tx, "set", [setting.name], str(value))
        self.engine.announce()
        return setting.name, value

    @steps.repeat_on_deadlock
    def unset_config(self, name: str) -> tuple[str, Number]:
        """Back to the default, which is returned."""
        setting = settings.find(name)
        with self.engine.write() as tx:
            tx.run(sql.UNSET_CONFIG, {"key": setting.name})
            self.audit(tx, "unset", [setting.name], str(setting.default))
        self.engine.announce()
        return setting.name, setting.default

    def _config(self, tx: Transaction) -> Config:
        return settings.effective(tx.rows(sql.READ_CONFIG))

    # -- clean-up ----------------------------------------------------------------------------------------

    def prune(self, states: Sequence[str], older_than: float, limit: int = PRUNED_AT_ONCE) -> int:
        """Delete up to `limit` jobs that finished more than `older_than` seconds ago, and their logs: fewer if much
        goes with them, none only if there are none."""
        from queuectl.store import bulk_changes

        return bulk_changes.prune(self, states, older_than, limit)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these jobs with their history and logs; all must have finished. They are checked together, and
        deleted in steps if much goes with them."""
        from queuectl.store import bulk_changes

        hint = "only a job that has finished can be deleted; cancel it first"
        return bulk_changes.delete(self, ids, FINISHED, hint)

    def purge_dead(self, ids: Sequence[str] | None = None) -> int:
        """Delete dead jobs with their history and logs: these, or all."""
        from queuectl.store import bulk_changes

        return bulk_changes.delete(self, ids, ("dead",), "only dead jobs can be purged")

    def reset(self) -> int:
        """Delete every job with its history and log, and all settings. Refused while workers live, and while jobs
        count as running."""
        from queuectl.store import reset

        return reset.wipe(self)

    def audit(self, tx: Transaction, action: str, targets: Sequence[str], detail: str = "") -> None:
        """Write down who did what, if it is done on somebody's behalf and to something."""
        if self.actor:
            from queuectl.store.audit import Entry

            Entry(self.actor, action, detail).add(tx, targets)


def refuse_left_running(tx: Transaction, then: str, so_far: str = "") -> None:
    """Raise if dead workers have left jobs that count as running. Before these are put back, what is left of their
    processes must be ended: that is a worker's business, and it finds them by these rows."""
    [(left,)] = tx.rows(sql.COUNT_RUNNING)
    if left:
        hint = f"start a worker, it puts them back: queuectl worker start; when it has, stop it and {then}"
        raise Conflict(f"workers that died have left jobs behind: {left}{so_far}", hint)


def _pairs(text: str | None, by: str) -> list[tuple[str, str, str]]:
    return [pair.partition(by) for pair in text.split()] if text else []
