"""What must hold of every change of every job, whatever was done to the queue. Pure: it reads what `recorder` kept.

The changes are replayed one after the other. Each transition must be one that the specification allows, and may
change only the fields that belong to it; a claim must find the job due, its parents met, and room in its queue and
for its key; a worker leaves only when it holds nothing; a job leaves only when it has finished, or by a reset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from queuectl.hooks import hook
from queuectl.jobs import dependency_rules
from queuectl.jobs.states import FINISHED, WAITING
from tests.chaos.recorder import Change

Row = Mapping[str, Any]
RESULTS = ("attempts", "crashes", "snoozes")
UNLIMITED = 1_000_000_000

_CLAIM = {"ready", "run", "worker_id", "started_at"}
_SETTLE = {"ready", "cancel_requested", "run_at", "finished_at", *RESULTS}
_CANCEL = {"ready", "parked", "finished_at"}
# From which state to which, and what else may change with it; `updated_at` always may.
TRANSITIONS: dict[tuple[str, str], set[str]] = {
    **{(state, "processing"): _CLAIM for state in WAITING},
    **{("processing", state): _SETTLE for state in ("completed", "failed", "dead", "cancelled", "pending")},
    **{(state, "cancelled"): _CANCEL for state in (*WAITING, "blocked")},
    ("dead", "pending"): {"ready", "run_at", "finished_at", *RESULTS},
    ("blocked", "pending"): {"ready", "unmet"},
    ("cancelled", "blocked"): {"finished_at", "unmet"},
    # without another state: made ready or parked; asked to be cancelled; one dependency less
    **{(state, state): {"ready", "parked"} for state in WAITING},
    ("processing", "processing"): {"cancel_requested"},
    ("blocked", "blocked"): {"unmet"},
}
# What the end of a run may add to attempts, crashes and snoozes.
_NOTHING, _FAILED, _CRASHED, _SNOOZED = (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)
COUNTED = {
    "completed": {_NOTHING},
    "failed": {_FAILED},
    "dead": {_FAILED, _CRASHED},
    "pending": {_NOTHING, _CRASHED, _SNOOZED},
    "cancelled": {_NOTHING, _FAILED, _CRASHED, _SNOOZED},
}


class Running(NamedTuple):
    """A claim that has not been settled."""

    queue: str
    key: str | None
    began: int
    at: int


class Rules(NamedTuple):
    """The limits of a queue from a moment on."""

    at: int
    paused: bool = False
    at_once: int | None = None
    per_key: int | None = None
    rate: int | None = None
    rate_ms: int | None = None


T = TypeVar("T")


class Timeline(Generic[T]):
    """What was in force, and from when on."""

    def __init__(self, first: T) -> None:
        self._values = [(0, first)]

    def add(self, at: int, value: T) -> None:
        self._values.append((at, value))

    def since(self, began: int) -> list[T]:
        """What was in force at any time since a transaction began: it may have gone by each of these."""
        first = bisect_right([at for at, _ in self._values], began) - 1
        return [value for _, value in self._values[first:]]


class Dependency:
    def __init__(self, parent: int, condition: str, met: bool) -> None:
        self.parent = parent
        self.condition = condition
        self.met = met  # at any time since it was stored: what was met once stays met


class Replay:
    """The state of every job after each change, and what was wrong with the changes."""

    def __init__(self, resets: Sequence[tuple[int, int]] = ()) -> None:
        self.problems: list[str] = []
        self.jobs: dict[int, Row] = {}
        self.inserted: set[str] = set()
        self.deleted: set[str] = set()
        self.ends: dict[tuple[int, int], str] = {}  # (seq, run) → what the run made of its job
        self.completed: set[tuple[str, int]] = set()  # (id, run)
        self.story: dict[int, list[tuple[str, int]]] = defaultdict(list)  # seq → (state, run), claims left out
        self.workers: set[str] = set()
        self.claims = 0
        self._resets = resets  # when everything may go: from, to
        self._running: dict[int, Running] = {}
        self._rules: dict[str, Timeline[Rules]] = defaultdict(lambda: Timeline(Rules(0)))
        self._hooks: dict[str, Timeline[Row | None]] = defaultdict(lambda: Timeline(None))
        # Notifications by the beginning of their ids, hook:job: how many there must be, may be, and are.
        self._told: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._starts: dict[tuple[str, Rules], list[int]] = defaultdict(list)
        self._dependencies: dict[int, list[Dependency]] = defaultdict(list)
        self._children: dict[int, list[Dependency]] = defaultdict(list)

    def feed(self, changes: Iterable[Change]) -> Replay:
        for change in changes:
            match change.what:
                case "queues":
                    self._limited(change)
                case "dependencies":
                    self._depends(change)
                case "workers":
                    self._struck_off(change)
                case "hooks":
                    self._hooks[change.row["name"]].add(change.at, change.new)
                case "jobs":
                    self._changed(change)
        self._check_rates()
        for name, (least, most, told) in self._told.items():
            if not least <= told <= most:
                self.problems.append(
                    f"{name}: told {told} times of the ends of its runs, instead of {least} to {most}"
                )
        return self

    def _wrong(self, row: Row, what: str) -> None:
        self.problems.append(f"{row['id']} (run {row['run']}): {what}")

    # -- jobs --------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            self._delete(change)
        elif old is None:
            self._insert(new)
        else:
            if self.jobs.get(old["seq"]) != old:
                self._wrong(old, "a change was not recorded: is the recorder whole?")
            self._update(change, old, new)
        if new is None:
            self.jobs.pop(change.row["seq"], None)
        else:
            self.jobs[new["seq"]] = new

    def _insert(self, new: Row) -> None:
        if new["id"] in self.inserted:
            self._wrong(new, "enqueued twice")
        if new["queue"] == hook.QUEUE:
            self._told[new["id"].rpartition(":")[0]][2] += 1
        self.inserted.add(new["id"])
        self.story[new["seq"]].append((new["state"], 0))
        if new["state"] != ("blocked" if new["unmet"] else "pending") or new["run"] or new["worker_id"]:
            self._wrong(new, f"enqueued as {new['state']}, by {new['worker_id']}, with {new['unmet']} to wait for")

    def _update(self, change: Change, old: Row, new: Row) -> None:
        turn = (old["state"], new["state"])
        touched = {name for name in new if old[name] != new[name]} - {"state", "updated_at"}
        if turn not in TRANSITIONS:
            self._wrong(old, f"from {turn[0]} to {turn[1]}" + (f": {sorted(touched)}" if touched else ""))
            return
        if stray := touched - TRANSITIONS[turn]:
            self._wrong(old, f"from {turn[0]} to {turn[1]}, and with it {sorted(stray)}")
        if new["state"] == "processing" != old["state"]:
            self._claim(change, old, new)
        elif old["state"] == "processing" != new["state"]:
            self._settle(change, old, new)
        elif turn == ("dead", "pending") and any(new[name] for name in RESULTS):
            self._wrong(new, "retried, but its failed runs still count")
        elif turn == ("blocked", "pending"):
            self._check_parents(new)
        if old["state"] != new["state"]:
            if new["state"] != "processing":
                self.story[new["seq"]].append((new["state"], new["run"]))
            for dependency in self._children[new["seq"]]:
                dependency.met |= dependency_rules.outcome_of(dependency.condition, new["state"]) == "met"

    def _claim(self, change: Change, old: Row, new: Row) -> None:
        self.claims += 1
        self.workers.add(new["worker_id"])
        if not old["ready"] or new["ready"]:
            self._wrong(new, "claimed although it was not ready")
        if new["run"] != old["run"] + 1:
            self._wrong(new, f"claimed as run {new['run']} after run {old['run']}")
        self._check_parents(new)
        self._check_room(change, new)
        self._running[new["seq"]] = Running(new["queue"], new["key"], change.began, change.at)

    def _settle(self, change: Change, old: Row, new: Row) -> None:
        self._running.pop(new["seq"], None)
        self.ends[new["seq"], new["run"]] = new["state"]
        if new["state"] == "completed":
            self.completed.add((new["id"], new["run"]))
        added = tuple(new[name] - old[name] for name in RESULTS)
        if added not in COUNTED[new["state"]]:
            self._wrong(new, f"{new['state']}, and counted {dict(zip(RESULTS, added, strict=True))}")
        for name, versions in self._hooks.items():
            wants = [_wants(version, new) for version in versions.since(change.began)]
            told = self._told[f"{name}:{new['id']}"]
            told[0] += all(wants)
            told[1] += any(wants)

    def _delete(self, change: Change) -> None:
        old = change.row
        self.deleted.add(old["id"])
        self._running.pop(old["seq"], None)
        reset = any(start <= change.at <= end for start, end in self._resets)
        if old["state"] not in FINISHED and not reset:
            self._wrong(old, f"deleted while it was {old['state']}")

    def _struck_off(self, change: Change) -> None:
        worker = change.row["id"]
        for job in self.jobs.values():
            # With several transactions at once, a claim may be committed after its worker was struck off: then the
            # next look of any worker puts it back.
            if job["state"] == "processing" and job["worker_id"] == worker and not change.tx:
                self._wrong(job, f"worker {worker} was struck off while it held this job")

    # -- dependencies ------------------------------------------------------------------------------------

    def _depends(self, change: Change) -> None:
        row = change.row
        dependency = Dependency(row["parent"], row["condition"], row["state"] == "met")
        self._dependencies[row["child"]].append(dependency)
        self._children[row["parent"]].append(dependency)

    def _check_parents(self, new: Row) -> None:
        unmet = [dependency.parent for dependency in self._dependencies[new["seq"]] if not dependency.met]
        if unmet or new["unmet"]:
            self._wrong(new, f"may run, but {unmet or new['unmet']} never ended as it demands")

    # -- limits ------------------------------------------------------------------------------------------

    def _limited(self, change: Change) -> None:
        said = change.new or {}
        fields = {name: said.get(name) for name in Rules._fields[2:]}
        self._rules[change.row["name"]].add(change.at, Rules(change.at, bool(said.get("paused")), **fields))

    def _check_room(self, change: Change, new: Row) -> None:
        in_force = self._rules[new["queue"]].since(change.began)
        if all(rules.paused for rules in in_force):
            self._wrong(new, f"claimed from {new['queue']}, which is paused")
        most = max(rules.at_once or UNLIMITED for rules in in_force)
        here = sum(run.queue == new["queue"] and _seen(run, change, in_force[-1]) for run in self._running.values())
        if here >= most:
            self._wrong(new, f"claimed from {new['queue']}, where {here} ran and {most} may")
        if new["key"] is not None:
            most = max(new["key_limit"] or rules.per_key or 1 for rules in in_force)
            alike = sum(run.key == new["key"] for run in self._running.values())
            if alike >= most:
                self._wrong(new, f"claimed with key {new['key']}, of which {alike} ran and {most} may")
        if in_force[-1].rate and in_force[-1].at < change.began:
            self._starts[new["queue"], in_force[-1]].append(new["started_at"])

    def _check_rates(self) -> None:
        for (queue, rules), starts in self._starts.items():
            assert rules.rate is not None
            assert rules.rate_ms is not None
            starts.sort()
            for first, last in zip(starts, starts[rules.rate :], strict=False):
                if last - first < rules.rate_ms:
                    self.problems.append(
                        f"{queue}: more than {rules.rate} starts within {rules.rate_ms} ms of {first}"
                    )


def _seen(run: Running, change: Change, rules: Rules) -> bool:
    """Must a claim that goes by this rule have seen the other run? Not if that was claimed by a transaction that was
    under way when the rule came, and was committed after the claim began."""
    return run.began > rules.at or run.at <= change.began


def _wants(hooked: Row | None, job: Row) -> bool:
    """Is this hook to be told of what has become of the job?"""
    if hooked is None or hooked["paused"] or job["queue"] == hook.QUEUE:
        return False
    named = hooked["name"] in (job["notify"] or "").split()
    meant = named or (not hooked["only_named"] and hooked["queue"] in (None, job["queue"]))
    return meant and job["state"] in hooked["events"].split()
