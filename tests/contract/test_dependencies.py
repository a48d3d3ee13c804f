"""Jobs that wait for other jobs: when they may run, when they cannot, and when they can again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuectl.errors import Conflict, InvalidInput
from queuectl.jobs.dependency_rules import outcome_of
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Exited
from queuectl.jobs.states import FINISHED
from queuectl.store import Store, steps
from queuectl.store.engine import Engine
from tests.contract.conftest import FakeWorker, Hire, enqueue

FAILED = Exited(1)
ALL_AT_ONCE = steps.AT_ONCE


def job(id: str, *parents: str, condition: str = "ok", **fields: object) -> NewJob:
    links = [{"id": parent, "condition": condition} for parent in parents]
    return NewJob("true", id=id, depends_on=links, max_retries=1, **fields)  # type: ignore[arg-type]


def states(store: Store) -> dict[str, str]:
    return {job.id: job.state for job in reversed(store.views.jobs(limit=-1))}


def story(store: Store, id: str) -> list[tuple[str, str]]:
    return [(event.state, event.reason) for event in store.views.history(id)]


def test_a_job_is_blocked_until_all_its_parents_have_completed(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b"), job("c", "a", "b")])
    worker = hire()
    assert states(store) == {"a": "pending", "b": "pending", "c": "blocked"}
    assert [worker.work_off() for _ in range(2)] == ["a", "b"]
    assert states(store)["c"] == "pending"
    assert worker.work_off() == "c"
    assert story(store, "c")[:2] == [("blocked", "enqueued"), ("pending", "all it waited for has come")]


def test_a_batch_may_name_jobs_that_come_later_in_it(store: Store, hire: Hire) -> None:
    store.enqueue([job("c", "b"), job("b", "a"), job("a")])
    worker = hire()
    assert [worker.work_off() for _ in range(3)] == ["a", "b", "c"]


def test_parents_that_have_completed_before_hold_nothing_up(store: Store, hire: Hire) -> None:
    enqueue(store, id="a")
    worker = hire()
    worker.work_off()
    store.enqueue([job("b", "a")])
    assert store.views.job("b").depends_on == (("a", "ok"),)
    assert states(store)["b"] == "pending"
    assert story(store, "b") == [("pending", "enqueued")]


def test_a_released_job_still_waits_for_its_time(store: Store, hire: Hire, clock: Callable[[], int]) -> None:
    store.enqueue([job("a"), job("b", "a", run_at=clock() + 60_000)])
    worker = hire()
    worker.work_off()
    assert states(store)["b"] == "pending"
    assert worker.claim() == []


@pytest.mark.parametrize(
    ("condition", "after_success", "after_death", "after_cancel"),
    [
        ("ok", "pending", "cancelled", "cancelled"),
        ("fail", "cancelled", "pending", "cancelled"),
        ("any", "pending", "pending", "pending"),
    ],
)
def test_a_condition_says_how_the_parent_must_end(
    store: Store, hire: Hire, condition: str, after_success: str, after_death: str, after_cancel: str
) -> None:
    store.enqueue([job(f"p{n}") for n in range(3)] + [job(f"c{n}", f"p{n}", condition=condition) for n in range(3)])
    worker = hire()
    worker.work_off()
    worker.work_off(FAILED)
    store.cancel(["p2"])
    found = states(store)
    assert [found["c0"], found["c1"], found["c2"]] == [after_success, after_death, after_cancel]


def test_what_can_no_longer_run_is_cancelled_down_to_the_last_and_says_why(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b", "a"), job("c", "b"), job("d", "c", condition="any")])
    hire().work_off(FAILED)
    assert states(store) == {"a": "dead", "b": "cancelled", "c": "cancelled", "d": "pending"}
    assert store.views.job("b").error == 'its dependency "a" is dead'
    assert story(store, "c")[-1] == ("cancelled", 'cancelled: its dependency "b" is cancelled')
    assert store.views.counts()["cancelled"] == 2


def test_a_parent_that_fails_and_will_be_retried_holds_its_children(store: Store, hire: Hire) -> None:
    store.enqueue([NewJob("true", id="a", max_retries=2), job("b", "a")])
    hire().work_off(FAILED)
    assert states(store) == {"a": "failed", "b": "blocked"}


def test_a_retry_of_the_dead_parent_revives_what_it_had_cancelled(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b", "a"), job("c", "b")])
    worker = hire()
    worker.work_off(FAILED)
    store.retry(["a"])
    assert states(store) == {"a": "pending", "b": "blocked", "c": "blocked"}
    assert story(store, "c")[-1] == ("blocked", 'revived: its dependency "b" runs again')
    assert [worker.work_off() for _ in range(3)] == ["a", "b", "c"]


def test_it_stays_cancelled_until_the_last_of_its_dead_parents_is_retried(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b"), job("x"), job("c", "a", "b", "x")])
    worker = hire()
    worker.work_off(FAILED)
    worker.work_off(FAILED)
    worker.work_off()  # what is met meanwhile need not be met again
    store.retry(["a"])
    assert states(store)["c"] == "cancelled"
    store.retry(["b"])
    assert states(store)["c"] == "blocked"
    assert [worker.work_off() for _ in range(3)] == ["a", "b", "c"]


def test_what_somebody_has_cancelled_is_not_revived(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b", "a")])
    store.cancel(["b"])
    hire().work_off(FAILED)
    store.retry(["a"])
    assert states(store) == {"a": "pending", "b": "cancelled"}


def test_a_worker_that_dies_for_good_ends_the_wait_too(store: Store, hire: Hire) -> None:
    store.set_config("crash_limit", "1")
    store.enqueue([job("a"), job("b", "a"), job("c", "a", condition="fail")])
    worker = hire()
    worker.claim_one()
    worker.die()
    store.recover(worker.id)
    assert states(store) == {"a": "dead", "b": "cancelled", "c": "pending"}


def test_workers_are_told_of_what_may_run_now(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b", "a")])
    worker, other = hire("w1"), hire("w2")
    claim = worker.claim_one()
    other.hears()
    worker.settle(claim)
    assert other.hears()


def test_a_circle_is_refused_and_shown(store: Store) -> None:
    with pytest.raises(InvalidInput, match="wait for each other: a → c → b → a"):
        store.enqueue([job("x"), job("a", "c"), job("b", "a"), job("c", "b")])
    with pytest.raises(InvalidInput, match="a → a"):
        store.enqueue([job("a", "a")])
    assert states(store) == {}


def test_a_parent_must_be_there(store: Store) -> None:
    with pytest.raises(Conflict, match='wait for "nobody", but there is no such job') as refused:
        store.enqueue([job("a"), job("b", "nobody")])
    assert refused.value.index == 1
    assert states(store) == {}


@pytest.mark.parametrize(
    ("condition", "end", "state"),
    [("ok", FAILED, "dead"), ("fail", Exited(0), "completed")],
)
def test_a_job_that_could_never_run_is_refused(
    store: Store, hire: Hire, condition: str, end: Exited, state: str
) -> None:
    enqueue(store, id="a", max_retries=1)
    hire().work_off(end)
    with pytest.raises(Conflict, match=f'can never run: "a", which it should wait for, is {state}'):
        store.enqueue([job("b", "a", condition=condition)])


def test_the_chain_before_a_blocked_job_can_be_seen(store: Store) -> None:
    store.enqueue([job("a"), job("b", "a"), job("c", "b", "a"), job("d", "c", condition="any")])
    assert [(wait.depth, wait.link.id, wait.link.state) for wait in store.views.waits("d")] == [
        (0, "c", "blocked"), (1, "a", "pending"), (1, "b", "blocked"), (2, "a", "pending"),
    ]  # fmt: skip
    assert [(link.id, link.condition) for link in store.views.children("a")] == [("b", "ok"), ("c", "ok")]


def test_a_wide_and_deep_chain_is_cut_where_nobody_would_read_on(store: Store) -> None:
    store.enqueue([job("j0")] + [job(f"j{n}", f"j{n - 1}") for n in range(1, 200)])
    assert len(store.views.waits("j199")) == 20


def test_pruning_a_parent_leaves_its_children_alone(store: Store, hire: Hire, clock: Callable[[], int]) -> None:
    store.enqueue([job("a"), job("b"), job("c", "a", "b")])
    worker = hire()
    worker.work_off()
    assert store.prune(["completed"], 0) == 1
    assert states(store) == {"b": "pending", "c": "blocked"}
    worker.work_off()
    assert states(store)["c"] == "pending"


DELETIONS: dict[str, Callable[[Store], int]] = {
    "delete": lambda store: store.delete(["p3"]),
    "purge": lambda store: store.purge_dead(["p3"]),
    "purge all": lambda store: store.purge_dead(),
    "prune": lambda store: store.prune(["dead"], 0),
}


@pytest.mark.parametrize("how", DELETIONS)
def test_deleting_a_dead_parent_satisfies_no_child(store: Store, hire: Hire, how: str) -> None:
    store.enqueue([job("p3"), job("p1"), job("c", "p1", "p3"), job("d", "c")])
    worker = hire()
    worker.work_off(FAILED)
    assert DELETIONS[how](store) == 1
    worker.work_off(FAILED)
    store.retry(["p1"])
    assert states(store) == {"p1": "pending", "c": "cancelled", "d": "cancelled"}
    worker.work_off()
    assert states(store) == {"p1": "completed", "c": "cancelled", "d": "cancelled"}


def test_a_deleted_parent_is_still_named_and_said_to_be_deleted(store: Store, hire: Hire) -> None:
    store.enqueue([job("p3"), job("p1"), job("c", "p1", "p3")])
    worker = hire()
    worker.work_off(FAILED)
    worker.work_off(FAILED)
    store.purge_dead(["p3"])
    found = store.views.job("c")
    assert sorted(found.depends_on) == [("p1", "ok"), ("p3", "ok")]
    assert {(link.id, link.state, link.outcome) for link in store.views.parents("c")} == {
        ("p1", "dead", "broken"),
        ("p3", "deleted", "broken"),
    }
    reasons = store.views.explain(found, [], store.views.clock())
    assert any('"p3"' in reason and "deleted" in reason for reason in reasons), reasons
    assert not any("waits for it again" in reason for reason in reasons), "retrying p1 does not help"
    store.retry(["p1"])
    assert story(store, "c")[-1] == ("cancelled", 'not revived: its dependency "p3" was deleted')
    enqueue(store, id="p3")  # another job of that name is not the one that was waited for
    assert {(link.id, link.state) for link in store.views.parents("c")} == {("p1", "pending"), ("p3", "deleted")}
    assert store.views.children("p3") == []


def test_parents_that_were_met_and_deleted_stay_met(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b"), job("c", "a", "b")])
    worker = hire()
    worker.work_off()
    assert store.prune(["completed"], 0) == 1
    worker.work_off(FAILED)
    assert states(store) == {"b": "dead", "c": "cancelled"}
    store.retry(["b"])
    worker.work_off()
    assert states(store) == {"b": "completed", "c": "pending"}
    assert {(link.id, link.state, link.outcome) for link in store.views.parents("c")} == {
        ("a", "deleted", "met"),
        ("b", "completed", "met"),
    }


def test_a_deleted_child_takes_its_dependencies_along(store: Store, hire: Hire) -> None:
    store.enqueue([job("a"), job("b", "a")])
    store.cancel(["b"])
    store.delete(["b"])
    assert store.views.children("a") == []
    hire().work_off()
    enqueue(store, id="b")
    assert store.views.parents("b") == []


def test_parents_that_end_at_the_same_moment_strand_nobody(
    store: Store, hire: Hire, open_engine: Callable[[], Engine]
) -> None:
    """Each in a transaction of its own, as two workers would."""
    for turn in range(20):
        parents = [f"p{turn}-{n}" for n in range(4)]
        store.enqueue([*(job(parent) for parent in parents), job(f"c{turn}", *parents)])
        workers = [hire(f"w{turn}-{n}") for n in range(4)]
        claims = [worker.claim_one() for worker in workers]
        others = [Store(open_engine()) for _ in workers]
        for worker, other in zip(workers, others, strict=True):
            worker._store = other
        threads = [Thread(target=worker.settle, args=(c,)) for worker, c in zip(workers, claims, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for other in others:
            other.close()
        for worker in workers:
            worker._store = store
            store.unregister(worker.id)
        assert states(store)[f"c{turn}"] == "pending"
        store.cancel([f"c{turn}"])


def test_an_end_that_is_under_way_is_seen_by_whoever_wants_to_wait_for_it(
    store: Store, other_store: Store, hire: Hire
) -> None:
    """He who counts locks the parent: else he would count one whose end has told its children already."""
    store.enqueue([job("a")])
    claim = hire().claim_one()
    with store.engine.write() as tx:
        tx.run(
            "UPDATE jobs SET state = 'completed', finished_at = :now, reason = '' WHERE seq = :seq",
            {"now": tx.now, "seq": claim.seq},
        )
        waiting = Thread(target=other_store.enqueue, args=([job("b", "a")],))
        waiting.start()
        waiting.join(0.5)  # long enough to come to the lock; without one it would be through by now
    waiting.join()
    assert states(store) == {"a": "completed", "b": "pending"}


# -- against a model -------------------------------------------------------------------------------------


@dataclass
class Node:
    parents: dict[str, str]
    state: str = "pending"
    edges: dict[str, str] = field(default_factory=dict)  # to its parents


class Model:
    """What should happen, in as few words as possible."""

    def __init__(self, graph: dict[str, dict[str, str]]) -> None:
        self.nodes = {id: Node(parents, edges=dict.fromkeys(parents, "open")) for id, parents in graph.items()}
        for node in self.nodes.values():
            node.state = "blocked" if node.edges else "pending"

    def end(self, id: str, state: str) -> None:
        self.nodes[id].state = state
        for child in self.children(id):
            node = self.nodes[child]
            good = {"ok": ["completed"], "fail": ["dead"], "any": ["completed", "dead", "cancelled"]}
            if node.edges[id] == "open":
                node.edges[id] = "met" if state in good[node.parents[id]] else "broken"
                if node.state == "blocked" and node.edges[id] == "broken":
                    self.end(child, "cancelled")
                elif node.state == "blocked" and set(node.edges.values()) == {"met"}:
                    node.state = "pending"

    def cancel(self, id: str) -> None:
        node = self.nodes[id]
        node.edges = {parent: "void" if edge == "open" else edge for parent, edge in node.edges.items()}
        self.end(id, "cancelled")

    def retry(self, id: str, state: str = "pending") -> None:
        self.nodes[id].state = state
        for child in self.children(id):
            node = self.nodes[child]
            if node.edges[id] == "broken":
                node.edges[id] = "open"
                if node.state == "cancelled" and "broken" not in node.edges.values():
                    self.retry(child, "blocked")

    def delete(self, id: str) -> None:
        """What it was to its children stays as it is."""
        del self.nodes[id]

    def children(self, id: str) -> list[str]:
        return [child for child, node in self.nodes.items() if id in node.parents]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    size = draw(st.integers(2, 8))
    graph = {}
    for number in range(size):
        earlier = st.sampled_from([f"n{n}" for n in range(number)]) if number else st.nothing()
        parents = draw(st.lists(earlier, unique=True, max_size=3)) if number else []
        graph[f"n{number}"] = {parent: draw(st.sampled_from(["ok", "ok", "fail", "any"])) for parent in parents}
    order = draw(st.permutations(list(graph)))
    return {id: graph[id] for id in order}


@st.composite
def fans(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    """Some parents of one child, which has one itself: where it matters most that none is forgotten."""
    parents = [f"p{n}" for n in range(draw(st.integers(2, 3)))]
    return {**{id: {} for id in parents}, "c": dict.fromkeys(parents, "ok"), "d": {"c": "ok"}}


def enqueue_graph(store: Store, graph: dict[str, dict[str, str]]) -> None:
    store.enqueue(
        [
            NewJob(
                "true",
                id=id,
                max_retries=1,
                depends_on=[{"id": parent, "condition": condition} for parent, condition in parents.items()],
            )
            for id, parents in graph.items()
        ]
    )


# How much of a cascade goes into one transaction: all of it, or one dependency.
STEPS = st.sampled_from([250, 1])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), graph=graphs() | fans(), step=STEPS)
def test_any_graph_ends_as_the_model_says(
    store: Store, hire: Hire, data: st.DataObject, graph: dict[str, dict[str, str]], step: int
) -> None:
    store.reset()
    worker = hire()
    try:
        enqueue_graph(store, graph)
        model = Model(graph)
        steps.AT_ONCE = step
        for _ in range(4 * len(graph)):
            while store.work_off():
                pass
            held = {id: node.state for id, node in model.nodes.items()}
            assert states(store) == held
            choices = ["run"] * ("pending" in held.values()) + ["retry"] * ("dead" in held.values())
            choices += ["cancel"] * any(state in ("pending", "blocked") for state in held.values())
            choices += ["delete"] * any(state in FINISHED for state in held.values())
            if not choices:
                break
            match data.draw(st.sampled_from(choices)):
                case "run":
                    outcome = data.draw(st.sampled_from([FAILED, Exited(0)]))
                    model.end(worker.work_off(outcome), "completed" if outcome.code == 0 else "dead")
                case "cancel":
                    open_ones = [id for id, state in held.items() if state in ("pending", "blocked")]
                    chosen = data.draw(st.sampled_from(open_ones))
                    store.cancel([chosen])
                    model.cancel(chosen)
                case "delete":
                    chosen = data.draw(st.sampled_from([id for id, state in held.items() if state in FINISHED]))
                    ways = [store.delete, *[store.purge_dead] * (held[chosen] == "dead")]
                    assert data.draw(st.sampled_from(ways))([chosen]) == 1
                    model.delete(chosen)
                case _:
                    chosen = data.draw(st.sampled_from([id for id, state in held.items() if state == "dead"]))
                    store.retry([chosen])
                    model.retry(chosen)
        assert store.views.counts() == {
            state: sum(node.state == state for node in model.nodes.values()) for state in store.views.counts()
        }
    finally:
        steps.AT_ONCE = ALL_AT_ONCE
        worker.leave()
        store.unregister(worker.id)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), graph=graphs() | fans())
def test_whatever_happens_between_the_steps_of_a_cascade_nothing_runs_too_early_and_nothing_is_forgotten(
    store: Store, hire: Hire, data: st.DataObject, graph: dict[str, dict[str, str]]
) -> None:
    store.reset()
    worker = hire()
    steps.AT_ONCE = 1
    try:
        with patch.object(Store, "work_off_all"):  # as if whoever caused it were killed
            enqueue_graph(store, graph)
            for _ in range(5 * len(graph)):
                move(store, worker, data)
                nothing_runs_too_early(store)
        while store.work_off():
            pass
        nothing_runs_too_early(store)
        nothing_is_forgotten(store)
    finally:
        steps.AT_ONCE = ALL_AT_ONCE
        worker.leave()
        store.unregister(worker.id)


def move(store: Store, worker: FakeWorker, data: st.DataObject) -> None:
    """Do something that can be done now."""
    held = states(store)
    moves: list[Callable[[], object]] = [store.work_off]
    if "pending" in held.values():
        moves += [lambda: worker.work_off(FAILED), lambda: worker.work_off()]
    for state, action in (("dead", store.retry), ("blocked", store.cancel), ("cancelled", store.delete)):
        if chosen := [id for id, found in held.items() if found == state]:
            moves.append(lambda chosen=chosen, action=action: action([data.draw(st.sampled_from(chosen))]))  # type: ignore[misc]
    with suppress(Conflict):  # a job cannot be deleted before its children have been told
        data.draw(st.sampled_from(moves))()


EDGES = """
SELECT child.id, child.state, child.unmet, condition, dependencies.state, parent.state
  FROM dependencies JOIN jobs AS child ON child.seq = dependencies.child
  LEFT JOIN jobs AS parent ON parent.seq = dependencies.parent
"""


def edges_of(store: Store) -> list[Any]:
    with store.engine.read() as tx:
        return tx.rows(EDGES)


def nothing_runs_too_early(store: Store) -> None:
    for id, state, unmet, _, edge, _ in edges_of(store):
        if state not in ("blocked", "cancelled"):
            assert (unmet, edge) == (0, "met"), id


def nothing_is_forgotten(store: Store) -> None:
    """Every dependency says what became of the parent, and no job is blocked that could run, or could not."""
    found = edges_of(store)
    for id, state, unmet, condition, edge, parent in found:
        mine = [other[4] for other in found if other[0] == id]
        if edge in ("open", "broken") and parent is not None:
            assert edge == outcome_of(condition, parent), id
        if state == "blocked":
            assert unmet == mine.count("open") > 0, id
            assert set(mine) <= {"open", "met"}, id
