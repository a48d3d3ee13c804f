"""How many jobs may run: limits of queues and of keys, kept by whoever claims.

A queue with a limit is claimed from by one worker at a time (`tx.alone_with`), who counts what runs, or when the last
runs started, and takes no more than there is room for. Whoever comes second does not wait: he looks at other queues
and comes back. Jobs whose key has enough runs are parked when a claim comes upon them, so that nobody comes upon them
twice; the end of a run with their key lets the next of them go, in each queue: that is a look, the claim decides.

A parked job always has one with its key that runs, or one that is ready in its own queue: whatever takes that one
away must call `follow`.
"""

from __future__ import annotations

from queuectl.errors import InvalidInput
from queuectl.store import steps
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from queuectl.jobs.model import Claim, Rules
    from queuectl.store.engine import Params, Transaction

SOON = 10  # milliseconds after which to look again at what another worker is claiming from
CLOCK_WAS_SET = 60_000  # a start so far in the future was written by a clock that was wrong, then or now
PARKED_AT_ONCE = 2500
KEYS_AT_ONCE = 100
STARTS_ON_RECORD = 1000  # of a higher rate they are counted in steps: never too early, and late by a thousandth
NO_LIMIT = 1_000_000_000


# -- what is said of queues ------------------------------------------------------------------------------


def rules(tx: Transaction, names: Collection[str]) -> dict[str, Rules]:
    """What is said of these queues, by name; most are not mentioned."""
    from queuectl.jobs.model import Rules

    return {row[0]: Rules.of(row) for row in tx.rows(sql.RULES_OF, {"names": list(names)})}


def all_rules(tx: Transaction) -> dict[str, Rules]:
    from queuectl.jobs.model import Rules

    return {row[0]: Rules.of(row) for row in tx.rows(sql.RULES)}


def change(tx: Transaction, name: str, **fields: Any) -> Rules:
    """Say something else of a queue; what holds from now on. Half a rate is refused."""
    from queuectl.jobs.model import Rules

    tx.alone_with([f"queue {name}"], patiently=True)  # no claim that is under way counts by another rule
    tx.run(sql.MENTION_QUEUE, {"name": name})
    [row] = tx.rows(sql.LOCK_QUEUE, {"name": name})
    new = Rules.of(row)._replace(**fields)
    if (new.rate is None) != (new.rate_ms is None):
        raise InvalidInput("a rate needs a number and a time", "give both, or neither")
    if new == Rules(name):
        tx.run(sql.FORGET_QUEUE, {"name": name})
    else:
        tx.run(sql.SAY_OF_QUEUE, new._asdict())
    if new.rate is None:
        tx.run(sql.FORGET_ALL_STARTS, {"queue": name})
    return new


def let_go(tx: Transaction, queue: str, after: str) -> str | None:
    """The limit for each key of a queue has changed: let go of as many as may run now that were put aside, of some
    keys after this one; the last of them, None if there are no more. (What is left out, the next end lets go.)"""
    found = tx.rows(sql.PARKED_KEYS, {"queue": queue, "after": after, "limit": KEYS_AT_ONCE})
    keys = [key for key, here in found if here]
    lock_keys(tx, keys)
    running: dict[str, int] = dict(tx.rows(sql.RUNNING_WITH, {"keys": keys})) if keys else {}
    said = rules(tx, [queue])
    most = _share(keys)
    gone = [seq for key in keys for seq in _may_run(tx, said, key, queue, running.get(key, 0), 1, most)]
    tx.each(sql.LET_GO, [{"seq": seq} for seq in gone])
    return str(found[-1][0]) if len(found) == KEYS_AT_ONCE else None


def limit_of(said: Mapping[str, Rules], queue: str, own: int | None) -> int:
    """How many jobs with the key of such a one may run at once."""
    rule = said.get(queue)
    return own or (rule and rule.per_key) or 1


# -- claiming --------------------------------------------------------------------------------------------


class Gate:
    """What may be claimed in one transaction."""

    def __init__(self, tx: Transaction, ruled: bool, undone: bool = False) -> None:
        self._tx = tx
        self._ruled = ruled  # is anything said of any queue?
        self.undone = undone  # may a batch be in the middle of its cancellation?
        self._to_park = PARKED_AT_ONCE
        self._rules: dict[str, Rules] = {}
        self._known: set[str] = set()
        self._room: dict[str, int] = {}  # in the queues that have a limit
        self._free_at: dict[str, int] = {}  # when the rate of a queue lets another one start, if all the room is used
        self._full: set[tuple[str, str]] = set()  # keys that have enough runs, and the queues they were met in
        self.busy: set[str] = set()  # keys that somebody else is at
        self.again_at: int | None = None
        """When there may be room again, or somebody else is done who was in our way."""

    def come_back(self, moment: int) -> None:
        """Have the worker look again then."""
        self.again_at = moment if self.again_at is None else min(self.again_at, moment)

    def open_to(self, queues: Iterable[str], slots: int) -> dict[str, int]:
        """The queues from which jobs may be claimed, and how many at most."""
        if not self._ruled:
            return dict.fromkeys(queues, slots)
        queues = list(queues)
        self._learn(queues)
        return {name: room for name in queues if (room := min(slots, self._room_in(name))) > 0}

    def _learn(self, queues: Iterable[str]) -> None:
        new = set(queues) - self._known
        if new and self._ruled:
            self._known |= new
            self._rules |= rules(self._tx, new)

    def _room_in(self, name: str) -> int:
        rule = self._rules.get(name)
        if rule is None or not (rule.paused or rule.at_once or rule.rate):
            return NO_LIMIT
        if rule.paused:
            return 0
        if name not in self._room:
            if not self._tx.alone_with([f"queue {name}"]):
                self.come_back(self._tx.now + SOON)
                return 0
            rule = rules(self._tx, [name]).get(name, rule)  # it may have been changed before we had it to ourselves
            self._rules[name] = rule
            self._room[name] = 0 if rule.paused else min(self._room_at_once(rule), self._room_by_rate(rule))
        return self._room[name]

    def _room_at_once(self, rule: Rules) -> int:
        if rule.at_once is None:
            return NO_LIMIT
        [(running,)] = self._tx.rows(sql.RUNNING_IN, {"queue": rule.name})
        return int(rule.at_once - running)

    def _room_by_rate(self, rule: Rules) -> int:
        if rule.rate is None:
            return NO_LIMIT
        now = _stamp(rule, self._tx.now)
        if self._tx.run(sql.FORGET_STARTS, _old_starts(self._tx, rule)):
            # A transaction that began earlier, but gets the lock later, would miss the deleted starts: it sees by
            # this record that it is too old to count.
            self._tx.run(sql.COUNT_STARTS, {"queue": rule.name, "at": now, "n": 0})
        room, free_at, last = _by_rate(self._tx, rule)
        if last > now:  # a transaction that began after ours has counted or deleted starts
            self.come_back(self._tx.now + SOON if last - now < 1000 else last)
            return 0
        if room <= 0:
            self.come_back(free_at)
        self._free_at[rule.name] = free_at
        return room

    def let_in(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those that may run as far as their keys are concerned."""
        keys = sorted({claim.key for claim in claims if claim.key is not None})
        if not keys:
            return list(claims)
        tx = self._tx
        mine = tx.alone_with([f"key {key}" for key in keys])
        if len(mine) < len(keys):
            self.come_back(tx.now + SOON)
            self.busy |= {key for key in keys if f"key {key}" not in mine}
        keys = [key for key in keys if key not in self.busy]
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

    def count(self, claims: Iterable[Claim]) -> None:
        """These were claimed: there is so much less room."""
        taken: dict[str, int] = {}
        for claim in claims:
            if claim.queue in self._room:
                taken[claim.queue] = taken.get(claim.queue, 0) + 1
        for name, n in taken.items():
            self._room[name] -= n
            if name in self._free_at:
                at = _stamp(self._rules[name], self._tx.now)
                self._tx.run(sql.COUNT_STARTS, {"queue": name, "at": at, "n": n})
                if self._room[name] <= 0:
                    self.come_back(self._free_at[name])

    def park(self) -> bool:
        """Put aside what was met and has to wait for its key. Was there any? Then it is worth while to look again."""
        full, self._full = self._full, set()
        for key, queue in sorted(full):
            self._to_park -= self._tx.run(sql.PARK, {"key": key, "queue": queue, "limit": self._to_park})
            if self._to_park <= 0:
                self.come_back(self._tx.now)
                return False
        return bool(full)

    # -- afterwards --------------------------------------------------------------------------------------

    def with_rules(self, claim: Claim) -> Claim:
        """The claim with what its queue says of retries, where the job says nothing itself."""
        self._learn([claim.queue])
        rule = self._rules.get(claim.queue)
        if rule is None or claim.retry_on or claim.no_retry_on:
            return claim
        return claim._replace(retry_on=rule.retry_on, no_retry_on=rule.no_retry_on)

    def left_room(self, ended: Iterable[Claim], taken: Iterable[Claim]) -> bool:
        """Did we make room in a queue with a limit that we do not use ourselves? Others should know."""
        room: dict[str, int] = {}
        for claim in ended:
            room[claim.queue] = room.get(claim.queue, 0) + 1
        for claim in taken:
            room[claim.queue] = room.get(claim.queue, 0) - 1
        self._learn(room)
        return any(n > 0 and name in self._rules and self._rules[name].at_once for name, n in room.items())


# -- rates -----------------------------------------------------------------------------------------------


def free_at(tx: Transaction, rule: Rules) -> int | None:
    """When another run may start in a queue with a rate; None if that is now."""
    if rule.rate is None:
        return None
    room, free_at, _ = _by_rate(tx, rule)
    return free_at if room <= 0 else None


def _by_rate(tx: Transaction, rule: Rules) -> tuple[int, int, int]:
    """How many runs may start now; when another one may, once so many have; and the last start."""
    assert rule.rate is not None
    assert rule.rate_ms is not None
    [(started, first, last)] = tx.rows(sql.STARTS_IN, {"queue": rule.name, **_old_starts(tx, rule)})
    return int(rule.rate - started), (tx.now if first is None else first) + rule.rate_ms, last or 0


def _old_starts(tx: Transaction, rule: Rules) -> Params:
    assert rule.rate_ms is not None
    return {"queue": rule.name, "before": tx.now - rule.rate_ms, "beyond": tx.now + CLOCK_WAS_SET}


def _stamp(rule: Rules, now: int) -> int:
    """The moment that a start is put down under: now, or of a high rate the end of the step that goes on."""
    assert rule.rate is not None
    assert rule.rate_ms is not None
    step = 1 if rule.rate <= STARTS_ON_RECORD else max(1, rule.rate_ms // STARTS_ON_RECORD)
    return -(-now // step) * step


# -- keys ------------------------------------------------------------------------------------------------


def lock_keys(tx: Transaction, keys: Iterable[str | None]) -> None:
    """Wait until nobody else counts the runs of these keys. To be called before their jobs are locked."""
    names = sorted({key for key in keys if key is not None})
    if names:
        tx.alone_with([f"key {name}" for name in names], patiently=True)


def follow(tx: Transaction, keys: Iterable[str | None]) -> bool:
    """Runs with these keys have ended, or jobs will not run that were about to: let go of as many as may run now that
    were put aside. Are there any?"""
    ended: dict[str, int] = {}
    for key in keys:
        if key is not None:
            ended[key] = ended.get(key, 0) + 1
    if not ended:
        return False
    lock_keys(tx, ended)
    if not tx.rows(sql.ANY_PARKED):
        return False
    running: dict[str, int] = dict(tx.rows(sql.RUNNING_WITH, {"keys": sorted(ended)}))
    gone: list[int] = []
    for key in sorted(ended):
        queues = [queue for (queue,) in tx.rows(sql.PARKED_QUEUES, {"key": key})]
        said = rules(tx, queues) if queues else {}
        for queue in queues:
            gone += _may_run(tx, said, key, queue, running.get(key, 0), ended[key], _share(ended))
    tx.each(sql.LET_GO, [{"seq": seq} for seq in gone])
    return bool(gone)


def _share(keys: Collection[str]) -> int:
    """How many jobs of each key are let go in one transaction; the ends of those let go of the others."""
    return max(1, steps.AT_ONCE // max(1, len(keys)))


def _may_run(
    tx: Transaction, said: Mapping[str, Rules], key: str, queue: str, busy: int, few: int, most: int
) -> list[int]:
    """The first parked jobs of this key and queue that may run now. Each queue for itself: the first of one may have
    to wait, and must not keep those of others."""
    found: list[int] = []
    for seq, own in _first_parked(tx, key, queue, few):
        if busy + len(found) >= limit_of(said, queue, own) or len(found) >= most:
            break
        found.append(seq)
    return found


def _first_parked(tx: Transaction, key: str, queue: str, few: int) -> Iterator[tuple[int, int | None]]:
    """Parked jobs in their order, with the limits they name. Few are read unless more are wanted."""
    seen, limit = 0, few + 1
    while True:
        rows = tx.rows(sql.PARKED_WITH, {"key": key, "queue": queue, "limit": limit})
        yield from rows[seen:]
        if len(rows) < limit:
            return
        seen, limit = len(rows), 4 * limit
