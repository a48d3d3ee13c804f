"""Runs in the store: claiming them, and settling them when they have ended. Parts of a transaction, `Store.tick`."""

from __future__ import annotations

from queuectl.jobs.states import FINISHED
from queuectl.store import batches, dependencies, limits
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from queuectl.jobs.lifecycle import Settlement
    from queuectl.jobs.model import Claim, Report
    from queuectl.metrics.run_stats import Tally
    from queuectl.queues.selection import Turns
    from queuectl.store.engine import Params, Row, Transaction

TALLIES = ("tallies",)  # one at a time adds to them, so that nobody waits for a row in the middle of his work
PASSED_OVER = 50  # jobs with keys that somebody else is at
CLAIM_ROUNDS = 5  # in one transaction: each puts jobs aside that have to wait for others


def settle(
    tx: Transaction,
    worker: str,
    ended: Sequence[tuple[Claim, Settlement, Report]],
    cancels: set[tuple[int, int]],
) -> tuple[list[Params], list[Claim]]:
    """End runs, with what they have said last; the rows that say how, and the runs that were refused, because their
    jobs have moved on. Those that turn out to be cancelled are added to `cancels`."""
    settled, refused = _settle(tx, worker, ended, cancels)
    if said := [row for row in settled if row["report"]]:
        tx.each(sql.REPORT, said)
    return settled, refused


def _settle(
    tx: Transaction,
    worker: str,
    ended: Sequence[tuple[Claim, Settlement, Report]],
    cancels: set[tuple[int, int]],
) -> tuple[list[Params], list[Claim]]:
    ended = sorted(ended, key=lambda run: run[0].seq)  # the order in which others lock jobs, too
    rows: list[Params] = [_end(tx.now, worker, *run, cancelled=(run[0].seq, run[0].run) in cancels) for run in ended]
    missed = {row["seq"] for row in tx.missed(sql.SETTLE, rows)}
    if not missed:
        return rows, []
    settled, refused = [], []
    for run, row in zip(ended, rows, strict=True):
        claim, end, _ = run
        if row["seq"] not in missed:
            settled.append(row)
            continue
        again = _end(tx.now, worker, *run, cancelled=True)
        if not row["cancelled"] and not tx.missed(sql.SETTLE, [again]):  # cancelled in this very moment
            settled.append(again)
            cancels.add((claim.seq, claim.run))
            continue
        tx.rows(sql.LOCK_SEQ, {"seq": claim.seq})
        fence = {"seq": claim.seq, "run": claim.run, "worker": worker}
        outcome = {"outcome": end.outcome, "exit_code": _or_none(end.exit_code), "signal": _or_none(end.signal)}
        if not tx.rows(sql.ALREADY_SETTLED, fence | outcome):
            reason = f"late result of run {claim.run} refused: the job has moved on ({end.reason})"
            tx.each(sql.RECORD_NOTE, [{**fence, "now": tx.now, "kind": "settle_refused", "reason": reason}])
            refused.append(claim)
    return settled, refused


def _or_none(code: int | None) -> int:
    """A code to compare with, where NULL equals nothing."""
    return -1 if code is None else code


def follow(tx: Transaction, settled: Sequence[Params], ended: Sequence[tuple[Claim, Settlement, Report]]) -> bool:
    """What the ends of runs mean for other jobs; may any of those run now, or is some of it left to workers?"""
    dead = [row["seq"] for row in settled if row["state"] == "dead"]
    batches.lock(tx, dead)
    released = dependencies.follow(tx, [row["seq"] for row in settled if row["finished_at"]])
    released |= batches.follow(tx, dead)
    return limits.follow(tx, [claim.key for claim, _, _ in ended]) or released


def _end(now: int, worker: str, claim: Claim, end: Settlement, report: Report, cancelled: bool) -> dict[str, object]:
    """The end of a run as a row. `cancelled`: we know that somebody wants the job cancelled."""
    from queuectl.jobs import lifecycle

    if cancelled:
        end = lifecycle.despite_cancel(end)
    return {
        "seq": claim.seq,
        "run": claim.run,
        "worker": worker,
        "now": now,
        "cancelled": int(cancelled),
        "state": end.state,
        "failed": int(end.failed),
        "crashed": int(end.crashed),
        "snoozed": int(end.snoozed),
        "run_at": now + round(end.delay * 1000),
        "finished_at": now if end.state in FINISHED else None,
        "outcome": end.outcome,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "error": end.error,
        "reason": end.reason,
        "duration_ms": report.duration_ms,
        "stdout": report.stdout,
        "stderr": report.stderr,
        "cpu_ms": report.cpu_ms,
        "max_rss_kb": report.max_rss_kb,
        "report": report.said,
    }


def record(tx: Transaction, tally: Tally) -> bool:
    """Add what was counted to the tallies, unless somebody else is at it: then it can wait. To be called last:
    whoever is at it must not wait for others."""
    from queuectl.metrics.run_stats import KEPT

    if not tx.alone_with(TALLIES):
        return False
    tx.each(sql.ADD_TALLIES, tally.rows(tx.now))
    for span, kept_ms in KEPT.items():
        tx.run(sql.FORGET_TALLIES, {"span": span, "before": tx.now - kept_ms})
    return True


def claim(
    tx: Transaction, worker: str, slots: int, turns: Turns | None, gate: limits.Gate, log_place: str | None
) -> list[Claim]:
    """Lease due jobs, as far as the gate lets them in. No job goes to two callers."""
    from queuectl.jobs.model import Claim
    from queuectl.queues.selection import ANY

    turns = turns or ANY
    by = {"worker": worker, "log_place": log_place, "now": tx.now}
    claims: list[Claim] = []
    for _ in range(CLAIM_ROUNDS):
        names = turns.names or [name for (name,) in tx.rows(sql.READY_QUEUES)]
        open_ones = gate.open_to(names, slots - len(claims))
        due = {name: _due(tx, name, most, gate.busy) for name, most in open_ones.items()}
        picked = turns.pick(due, slots - len(claims))
        if gate.undone:
            picked = batches.without_cancelled(tx, picked)
        new = gate.let_in([Claim(*(*row[1:], tx.now)) for row in picked])
        if new:
            tx.each(sql.CLAIM, [{"seq": claim.seq, "run": claim.run, **by} for claim in new])
            claims += new
        gate.count(new)
        if len(new) == len(picked) or len(claims) == slots or not (gate.park() or gate.busy):
            return claims
    gate.come_back(tx.now)
    return claims


def _due(tx: Transaction, queue: str, most: int, busy: Collection[str]) -> list[Row]:
    """The first due jobs of a queue, without those whose keys somebody else is at."""
    if not busy:
        return tx.rows(sql.READY_JOBS, {"queue": queue, "limit": most})
    rows = tx.rows(sql.READY_JOBS, {"queue": queue, "limit": most + PASSED_OVER})
    return [row for row in rows if row[-3] not in busy][:most]
