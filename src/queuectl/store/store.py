"""The queue itself. Every method is one transaction: it happens whole or not at all."""

from __future__ import annotations

from queuectl import logs, newjob, procfs, settings
from queuectl.errors import Conflict, Duplicate, OutcomeUnknown, StoreUnavailable, no_such_job
from queuectl.states import FINISHED
from queuectl.store import dependencies, intake, limits, runs, uniqueness
from queuectl.store import statements as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from queuectl.lifecycle import Settlement
    from queuectl.model import Claim, Report, Rules, Tick
    from queuectl.newjob import NewJob
    from queuectl.settings import Config, Number
    from queuectl.store.engine import Engine, Transaction
    from queuectl.store.figures import Figures
    from queuectl.store.hooks import Hooks
    from queuectl.store.schedules import Schedules
    from queuectl.store.views import Views
    from queuectl.tally import Tally
    from queuectl.turns import Turns

PROMOTED_AT_ONCE = 1000
PRUNED_AT_ONCE = 1000
ACTS_KEPT = 100_000
NAMED = 5  # of the things that something was done to


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
        from queuectl.store.figures import Figures

        return Figures(self.engine)

    @property
    def hooks(self) -> Hooks:
        from queuectl.store.hooks import Hooks

        return Hooks(self)

    def close(self) -> None:
        self.engine.close()

    # -- enqueue -----------------------------------------------------------------------------------------

    def enqueue(
        self,
        jobs: Sequence[NewJob],
        progress: Callable[[int], None] | None = None,
        skipped: Callable[[str], object] | None = None,
        submission: tuple[str, str] | None = None,
    ) -> list[str]:
        """Store all of them or none, and return their ids. When this returns they are on disk. Those that were to be
        skipped, because another job has their key, are told to `skipped`; the other's id stands in their place.

        A `submission` (its key, and a fingerprint of all it asks for) happens once: asked again, it brings the same
        ids, and stores nothing.
        """
        for _ in range(3):
            # Drawn ids in their own order: a database files neighbours faster than strangers.
            drawn = iter(sorted(newjob.new_ids(sum(not job.id for job in jobs))))
            ids = [job.id or next(drawn) for job in jobs]
            there: dict[int, str] = {}
            try:
                with self.engine.write() as tx:
                    if submission and (known := intake.answered(tx, *submission)) is not None:
                        return known
                    if any(job.notify for job in jobs):
                        self.hooks.refuse_unknown(tx, jobs)
                    there = intake.insert(tx, self.engine, jobs, ids, progress)
                    if submission:
                        final = [there.get(index, id) for index, id in enumerate(ids)]
                        tx.run(sql.ANSWER_SUBMISSION, {"key": submission[0], "ids": " ".join(final)})
                    if self.actor:
                        self.audit(tx, "enqueue", [id for index, id in enumerate(ids) if index not in there])
            except Duplicate:
                with self.engine.read() as tx:
                    intake.refuse_taken(tx, jobs)  # else a drawn id met an old one: again
                continue
            except OutcomeUnknown as lost:
                new = [id for index, id in enumerate(ids) if index not in there]
                if new and not self._is_stored(new[0], lost):  # all of them are, or none
                    raise
            self.engine.announce()
            for index, id in there.items():
                ids[index] = id
                if skipped:
                    skipped(id)
            return ids
        raise Conflict("no free id could be drawn", "try again")

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

    def unregister(self, worker: str) -> None:
        with self.engine.write() as tx:
            tx.run(sql.UNREGISTER, {"id": worker})

    def record(self, tally: Tally) -> None:
        """Store what is left of a worker's tally when it leaves; while it works, a tick takes that along."""
        with self.engine.write() as tx:
            tx.alone_with(runs.TALLIES, patiently=True)
            runs.record(tx, tally)

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
    ) -> Tick:
        """Settle what ended, lease up to `slots` due jobs, and bring the news: one transaction for all of it. A tally
        of runs that were settled before is taken along, unless another worker is just storing his.

        After an exchange that failed nobody knows if it has happened: given the (seq, run) of the runs that go on,
        what the store holds for this worker besides is handed out again.
        """
        from queuectl.model import Claim, Tick

        with self.engine.write() as tx:
            news = tx.rows(sql.NEWS, {"id": worker})
            nothing = ("now", None, None, None, False, None, True)
            stop, due, cancelled, set_to, ruled, fires, hooked = news[0] if news else nothing
            limits.lock_keys(tx, (claim.key for claim, _, _ in ended))
            cancels = {(int(seq), int(run)) for seq, _, run in _pairs(cancelled, ":")}
            settled, refused = runs.settle(tx, worker, ended, cancels)
            told = self.hooks.tell(tx, settled) if hooked and settled else False
            released = runs.follow(tx, settled, ended) or told
            gate = limits.Gate(tx, bool(ruled))
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
                claims += runs.claim(tx, worker, slots - len(claims), turns, gate, self.engine.log_place)
                due = min((moment for moment in (due, gate.again_at) if moment is not None), default=None)
            if ruled:
                claims = [gate.with_rules(claim) for claim in claims]
                released |= gate.left_room([claim for claim, _, _ in ended], claims)
            tick = Tick(
                claims=claims,
                refused=refused,
                cancels=cancels,
                stop=stop,
                tallied=runs.record(tx, tally) if tally else False,
                given_up=not news,
                due_in=None if due is None or len(claims) >= slots else max(0, due - tx.now) / 1000,
                fire_in=None if fires is None else max(0, fires - tx.now) / 1000,
                config=settings.effective([(key, value) for key, _, value in _pairs(set_to, "=")]),
            )
        if released:
            self.engine.announce()
        return tick

    def report(self, worker: str, said: Sequence[tuple[Claim, str]]) -> None:
        """Keep what runs that go on say of themselves. Of those that are no longer this worker's nothing is kept."""
        with self.engine.write() as tx:
            tx.rows(sql.LOCK_SEQS, {"seqs": [claim.seq for claim, _ in said]})
            by = {"state": "processing", "worker": worker, "now": tx.now}
            tx.each(sql.REPORT, [{"seq": claim.seq, "run": claim.run, "report": text, **by} for claim, text in said])

    def attendance(self) -> tuple[list[list[str]], set[str]]:
        """What each living worker that takes jobs was told of queues (words for `turns.serves`), and which queues are
        paused."""
        with self.engine.read() as tx:
            paused = {name for (name,) in tx.rows(sql.PAUSED)}
            told = [
                words.split() for words, *holder in tx.rows(sql.SERVED) if self.engine.is_alive(tuple(holder), tx.now)
            ]
        return told, paused

    # -- recovery ----------------------------------------------------------------------------------------

    def lost_workers(self, everywhere: bool = True) -> dict[str, list[Claim]]:
        """Workers that died without a word, or only those of this machine, and the runs that died with them."""
        from queuectl.model import Claim

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

    def recover(self, worker: str) -> tuple[str | None, list[tuple[Claim, Settlement, Report]]] | None:
        """Put back what a lost worker was running and strike it off; the order it had, and its runs. The caller has
        ended its processes. None if it has shown itself in the meantime: then it is left alone."""
        from queuectl import lifecycle
        from queuectl.model import Claim, Report

        lost, cancels, order = [], set(), None
        with self.engine.write() as tx:
            config = self._config(tx)
            limits.lock_keys(tx, (Claim(*row[:-1]).key for row in tx.rows(sql.HELD_BY, {"worker": worker})))
            for stop, *holder in tx.rows(sql.LOCK_WORKER, {"id": worker}):
                order = stop
                if self.engine.is_alive(tuple(holder), tx.now):
                    return None
            for *fields, cancel_requested in tx.rows(sql.LOCK_HELD_BY, {"worker": worker}):
                claim = Claim(*fields)
                if cancel_requested:
                    cancels.add((claim.seq, claim.run))
                outcome = lifecycle.Cancelled() if cancel_requested else lifecycle.Lost(worker)
                report = Report(duration_ms=max(0, tx.now - claim.started_at))
                lost.append((claim, lifecycle.after_run(claim, outcome, config, 0), report))
            settled, _ = runs.settle(tx, worker, lost, cancels)
            told = self.hooks.tell(tx, settled)
            released = runs.follow(tx, settled, lost) or told
            tx.run(sql.UNREGISTER, {"id": worker})
        if released:
            self.engine.announce()
        return order, lost

    # -- the operator's side -----------------------------------------------------------------------------

    def cancel(self, ids: Sequence[str]) -> dict[str, str]:
        """Cancel all of these jobs or none. A running one is ended by its worker: its state is still `processing`."""
        states, late = {}, []
        with self.engine.write() as tx:
            keys = [key for (key,) in tx.rows(sql.KEYS_OF, {"ids": list(ids)})]
            limits.lock_keys(tx, keys)
            found = self._locked(tx, ids)
            late = [(id, state) for id, (_, state, _, _) in found.items() if state in FINISHED]
            for id, (seq, state, run, worker) in found.items():
                fence = {"seq": seq, "run": run, "now": tx.now}
                if late:
                    if state not in FINISHED:
                        continue
                    reason = f"cancel refused: already {state}"
                elif tx.run(sql.CANCEL_WAITING, fence):
                    states[id] = reason = "cancelled"
                else:
                    tx.run(sql.REQUEST_CANCEL, fence)
                    states[id], reason = "processing", "cancel requested"
                tx.run(sql.RECORD_NOTE, {**fence, "worker": worker, "reason": reason})
            dependencies.cancelled(tx, [found[id][0] for id, state in states.items() if state == "cancelled"])
            limits.follow(tx, keys)
            self.audit(tx, "cancel", list(states))
        for id, state in late:
            raise Conflict(f'job "{id}" is already {state}', "only a job that has not finished can be cancelled")
        self.engine.announce()
        return states

    def retry(self, ids: Sequence[str] | None = None, spacing: float = 0) -> list[str]:
        """Give dead jobs a new life, with no attempts spent: all of these, or every one if None; one after the other
        with so many seconds between them."""
        with self.engine.write() as tx:
            chosen = [id for (id,) in tx.rows(sql.DEAD_JOBS)] if ids is None else list(ids)
            found = self._locked(tx, chosen)
            for number, (id, (seq, state, run, _)) in enumerate(found.items()):
                uniqueness.refuse_second(tx, seq)
                run_at = tx.now + round(number * spacing * 1000)
                if not tx.run(sql.RETRY_DEAD, {"seq": seq, "now": tx.now, "run_at": run_at}):
                    raise Conflict(
                        f'job "{id}" is {state}, not dead',
                        "only jobs in the dead letter queue can be retried",
                    )
                fence = {"seq": seq, "run": run, "worker": None, "now": tx.now}
                tx.run(sql.RECORD_NOTE, {**fence, "reason": "retried from the dead letter queue"})
            dependencies.revive(tx, [(seq, id) for id, (seq, *_) in found.items()])
            self.audit(tx, "retry", chosen, f"{spacing:g} s apart" if spacing else "")
        self.engine.announce()
        return chosen

    def _locked(self, tx: Transaction, ids: Sequence[str]) -> dict[str, tuple[int, str, int, str | None]]:
        """The seq, state, run and worker of these jobs, which nobody else changes now."""
        found = {id: (seq, state, run, by) for id, seq, state, run, by in tx.rows(sql.LOCK_JOBS, {"ids": ids})}
        for id in ids:
            if id not in found:
                raise no_such_job(id)
        return {id: found[id] for id in ids}

    def stop_workers(self, ids: Sequence[str], how: str) -> None:
        """Tell workers to leave: `drain` after their running jobs, `now` ending those and putting them back."""
        with self.engine.write() as tx:
            tx.run(sql.ORDER_STOP, {"ids": list(ids), "stop": how})
            self.audit(tx, "stop", ids, how)
        self.engine.announce()

    def change_queue(self, name: str, **fields: object) -> Rules:
        """Pause or limit a queue, or say how its jobs are retried (the fields of `Rules`); what holds from now on."""
        with self.engine.write() as tx:
            rules = limits.change(tx, name, **fields)
            self.audit(tx, "queue", [name], ", ".join(f"{field} = {value}" for field, value in fields.items()))
        self.engine.announce()
        return rules

    def config(self) -> Config:
        """Every setting's value in force."""
        with self.engine.read() as tx:
            return self._config(tx)

    def set_config(self, name: str, text: str) -> tuple[str, Number]:
        """Set it for everyone; running workers see it at once."""
        setting = settings.find(name)
        value = setting.parse(text)
        with self.engine.write() as tx:
            tx.run(sql.SET_CONFIG, {"key": setting.name, "value": repr(value)})
            self.audit(tx, "set", [setting.name], str(value))
        self.engine.announce()
        return setting.name, value

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
        """Delete up to `limit` jobs that finished more than `older_than` seconds ago, and their logs."""
        with self.engine.write() as tx:
            before = tx.now - round(older_than * 1000)
            ids = [id for (id,) in tx.rows(sql.PRUNE, {"states": list(states), "before": before, "limit": limit})]
            self.audit(tx, "prune", ids)
        logs.remove(self.engine.log_dir, ids)
        return len(ids)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these jobs with their history and logs, all or none; they must have finished."""
        return self._delete(ids, FINISHED, "only a job that has finished can be deleted; cancel it first")

    def purge_dead(self, ids: Sequence[str] | None = None) -> int:
        """Delete dead jobs with their history and logs: these, or all."""
        return self._delete(ids, ("dead",), "only dead jobs can be purged")

    def _delete(self, ids: Sequence[str] | None, states: Collection[str], hint: str) -> int:
        with self.engine.write() as tx:
            chosen = [id for (id,) in tx.rows(sql.DEAD_JOBS)] if ids is None else list(ids)
            for id, (_, state, _, _) in self._locked(tx, chosen).items():
                if state not in states:
                    allowed = "dead" if len(states) == 1 else "finished"
                    raise Conflict(f'job "{id}" is {state}, not {allowed}', hint)
            deleted = [id for (id,) in tx.rows(sql.DELETE_FINISHED, {"ids": chosen})]
            self.audit(tx, "delete", deleted)
        logs.remove(self.engine.log_dir, deleted)
        return len(deleted)

    def reset(self) -> int:
        """Delete every job with its history and log, and all settings. Refused while workers live."""
        with self.engine.write() as tx:
            tx.alone([*sql.COPIED, "counts", "workers"])
            alive = sum(self.holders(tx).values())
            if alive:
                raise Conflict(f"workers are running: {alive}", "stop them first: queuectl worker stop")
            ids = [id for (id,) in tx.rows(sql.ALL_IDS)]
            for statement in sql.WIPE:
                tx.run(statement)
            self.audit(tx, "reset", ids or ["everything"])
        logs.remove(self.engine.log_dir, ids)
        self.engine.compact()
        return len(ids)

    def audit(self, tx: Transaction, action: str, targets: Sequence[str], detail: str = "") -> None:
        """Write down who did what, if it is done on somebody's behalf and to something."""
        if not self.actor or not targets:
            return
        more = f" and {len(targets) - NAMED} more" if len(targets) > NAMED else ""
        act = {"who": self.actor, "action": action, "target": ", ".join(targets[:NAMED]) + more, "detail": detail}
        [(n,)] = tx.rows(sql.RECORD_ACT, {**act, "now": tx.now})
        tx.run(sql.FORGET_ACTS, {"last": n - ACTS_KEPT})


def _pairs(text: str | None, by: str) -> list[tuple[str, str, str]]:
    return [pair.partition(by) for pair in text.split()] if text else []
