"""How many jobs may run: limits of queues and of keys, kept by whoever claims.

A queue with a limit is claimed from by one worker at a time (`tx.alone_with`), who counts what runs, or when the last
runs started, and takes no more than there is room for. Whoever comes second does not wait: he looks at other queues
and comes back. Jobs whose key has enough runs are put aside (`held`) when a claim comes upon them, so that nobody
comes upon them twice; the end of a run with their key lets the next of them go.

Held jobs always have one with their key that runs or is ready: whatever takes that one away must call `follow`.
"""

from __future__ import annotations

from queuectl.store import statements as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from queuectl.model import Claim, Rules
    from queuectl.store.engine import Params, Transaction

SOON = 10  # milliseconds after which to look again at what another worker is claiming from
CLOCK_WAS_SET = 60_000  # a start so far in the future was written by a clock that was wrong, then or now
HELD_AT_ONCE = 1000
LET_GO_BESIDES = 10  # jobs of one key can have limits of their own
NO_LIMIT = 1_000_000


def rules(tx: Transaction) -> dict[str, Rules]:
    """What is said of queues, by name; most are not mentioned."""
    from queuectl.model import Rules

    return {row[0]: Rules(*row) for row in tx.rows(sql.RULES)}


def with_rules(claim: Claim, rules: Mapping[str, Rules]) -> Claim:
    """The claim with what its queue says of retries, where the job says nothing itself."""
    rule = rules.get(claim.queue)
    if rule is None or not (rule.retry_on or rule.no_retry_on):
        return claim
    return claim._replace(retry_on=claim.retry_on or rule.retry_on, no_retry_on=claim.no_retry_on or rule.no_retry_on)


class Gate:
    """What may be claimed in one transaction."""

    def __init__(self, tx: Transaction, rules: Mapping[str, Rules]) -> None:
        self._tx = tx
        self._rules = rules
        self._room: dict[str, int] = {}  # in the queues that have a limit
        self._full: set[tuple[str, str]] = set()  # keys that have enough runs, and the queues they were met in
        self.again_at: int | None = None
        """When there may be room again, or somebody else is done who was in our way."""

    def open_to(self, queues: Iterable[str], slots: int) -> dict[str, int]:
        """The queues from which jobs may be claimed, and how many at most."""
        if not self._rules:
            return dict.fromkeys(queues, slots)
        return {name: room for name in queues if (room := min(slots, self._room_in(name, slots))) > 0}

    def _room_in(self, name: str, slots: int) -> int:
        rule = self._rules.get(name)
        if rule is None or not (rule.paused or rule.at_once or rule.rate):
            return slots
        if rule.paused:
            return 0
        if name not in self._room:
            if not self._tx.alone_with([f"queue {name}"]):
                self.come_back(self._tx.now + SOON)
                return 0
            self._room[name] = min(self._room_at_once(rule), self._room_by_rate(rule))
        return self._room[name]

    def _room_at_once(self, rule: Rules) -> int:
        if rule.at_once is None:
            return NO_LIMIT
        [(running,)] = self._tx.rows(sql.RUNNING_IN, {"queue": rule.name})
        return int(rule.at_once - running)

    def _room_by_rate(self, rule: Rules) -> int:
        if rule.rate is None or rule.rate_ms is None:
            return NO_LIMIT
        tx, now = self._tx, self._tx.now
        old = {"queue": rule.name, "before": now - rule.rate_ms, "beyond": now + CLOCK_WAS_SET}
        tx.run(sql.FORGET_STARTS, old)
        [(started, first, last)] = tx.rows(sql.STARTED_IN, {"queue": rule.name})
        if started and last > now:  # a worker who began after us was faster: with an older moment we would be wrong
            self.come_back(now + SOON)
            return 0
        if started >= rule.rate:
            self.come_back(first + rule.rate_ms)
        return int(rule.rate - (started or 0))

    def come_back(self, moment: int) -> None:
        """Have the worker look again then."""
        self.again_at = moment if self.again_at is None else min(self.again_at, moment)

    def let_in(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those that may run as far as their keys are concerned."""
        keys = sorted({claim.key for claim in claims if claim.key is not None})
        if not keys:
            return list(claims)
        tx = self._tx
        mine = tx.alone_with([f"key {key}" for key in keys])
        if len(mine) < len(keys):
            self.come_back(tx.now + SOON)
        keys = [key for key in keys if f"key {key}" in mine]
        running: dict[str, int] = dict(tx.rows(sql.RUNNING_WITH, {"keys": keys}))
        admitted = []
        for claim in claims:
            if claim.key is None:
                admitted.append(claim)
            elif claim.key in keys:
                if running.get(claim.key, 0) < limit_of(self._rules, claim.queue, claim.key_limit):
                    running[claim.key] = running.get(claim.key, 0) + 1
                    admitted.append(claim)
                else:
                    self._full.add((claim.key, claim.queue))
        return admitted

    def claimed(self, claims: Iterable[Claim]) -> bool:
        """Count what was taken, and put aside what has to wait for its key: then it is worth while to look again."""
        taken: dict[str, int] = {}
        for claim in claims:
            if claim.queue in self._room:
                self._room[claim.queue] -= 1
                taken[claim.queue] = taken.get(claim.queue, 0) + 1
        for name, n in taken.items():
            if self._rules[name].rate:
                self._tx.run(sql.COUNT_STARTS, {"queue": name, "now": self._tx.now, "n": n})
        full, self._full = self._full, set()
        for key, queue in sorted(full):
            self._tx.run(sql.HOLD, {"key": key, "queue": queue, "limit": HELD_AT_ONCE})
        return bool(full)


def limit_of(rules: Mapping[str, Rules], queue: str, own: int | None) -> int:
    """How many jobs with the key of such a one may run at once."""
    rule = rules.get(queue)
    return own or (rule and rule.per_key) or 1


def free_at(tx: Transaction, rule: Rules) -> int | None:
    """When another run may start in a queue with a rate; None if that is now."""
    if rule.rate is None or rule.rate_ms is None:
        return None
    left = rule.rate
    starts = tx.rows(sql.STARTS_SINCE, {"queue": rule.name, "since": tx.now - rule.rate_ms})
    for at, n in reversed(starts):
        left -= n
        if left <= 0:
            return int(at + rule.rate_ms)
    return None


def left_room(rules: Mapping[str, Rules], ended: Iterable[Claim], taken: Iterable[Claim]) -> bool:
    """Did we make room in a queue with a limit that we do not use ourselves? Others should know."""
    room: dict[str, int] = {}
    for claims, step in ((ended, 1), (taken, -1)):
        for claim in claims:
            rule = rules.get(claim.queue)
            if rule and rule.at_once:
                room[claim.queue] = room.get(claim.queue, 0) + step
    return any(n > 0 for n in room.values())


def lock_keys(tx: Transaction, keys: Iterable[str | None]) -> None:
    """Wait until nobody else counts the runs of these keys. To be called before their jobs are locked."""
    names = sorted({key for key in keys if key is not None})
    if names:
        tx.alone_with([f"key {name}" for name in names], patiently=True)


def follow(tx: Transaction, keys: Iterable[str | None]) -> bool:
    """Runs with these keys have ended, or jobs will not run that were about to: let go of as many as may run now that
    were put aside. Are there any?"""
    named = [key for key in keys if key is not None]
    if not named:
        return False
    lock_keys(tx, named)
    said = rules(tx)
    gone: list[Params] = []
    running: dict[str, int] = dict(tx.rows(sql.RUNNING_WITH, {"keys": sorted(set(named))}))
    for key in sorted(set(named)):
        busy = running.get(key, 0)
        for seq, queue, own in tx.rows(sql.HELD_WITH, {"key": key, "limit": named.count(key) + LET_GO_BESIDES}):
            if busy >= limit_of(said, queue, own):
                break
            busy += 1
            gone.append({"seq": seq})
    tx.each(sql.LET_GO, gone)
    return bool(gone)


def change(tx: Transaction, name: str, **fields: Any) -> Rules:
    """Say something else of a queue; what holds from now on."""
    from queuectl.model import Rules

    tx.run(sql.MENTION_QUEUE, {"name": name})
    [row] = tx.rows(sql.LOCK_QUEUE, {"name": name})
    rules = Rules(*row)._replace(**fields)
    if rules == Rules(name):
        tx.run(sql.FORGET_QUEUE, {"name": name})
    else:
        tx.run(sql.SAY_OF_QUEUE, rules._asdict())
    if "per_key" in fields:  # what was put aside by the old limit is judged anew
        tx.run(sql.LET_GO_ALL, {"queue": name})
    return rules
