"""Hooks, on every engine: of each end of a run that they want to hear of they are told, once, and of no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from queuectl.errors import Conflict, InvalidInput, NotFound
from queuectl.hooks import hook
from queuectl.jobs.job_spec import NewJob
from queuectl.jobs.lifecycle import Cancelled, Exited, Interrupted, Outcome, Signalled, after_run
from queuectl.jobs.model import Job, Report
from queuectl.store import Store, hooks
from queuectl.store import write_queries as sql
from queuectl.store.engine import Engine
from tests.conftest import Clock
from tests.contract.conftest import DONE, Hire, enqueue

FAIL = Exited(3)
SECRET = "whsec_" + "c2VjcmV0" * 4


def add(store: Store, name: str = "h", *events: str, **fields: Any) -> None:
    store.hooks.add(name, events or hook.EVENTS, **({"command": "tell"} | fields))


def told(store: Store) -> list[Job]:
    """The notifications, in the order of their making."""
    return [job for job in reversed(store.views.jobs(limit=-1)) if job.queue == hook.QUEUE]


def heard(store: Store) -> list[tuple[str, str, str]]:
    """Hook, job and event of each notification."""
    return [
        (job.tags[0].removeprefix("hook:"), job.env["QUEUECTL_EVENT_JOB"], job.env["QUEUECTL_EVENT"])
        for job in told(store)
    ]


def run(store: Store, hire: Hire, outcome: Outcome = DONE, worker: str = "w", **fields: Any) -> str:
    """Enqueue a job and end its run; its id."""
    enqueue(store, **{"id": "job", "queue": "work", **fields})
    runner = hire(worker, queues=(fields.get("queue", "work"),))
    runner.settle(runner.claim_one(), outcome, Report(duration_ms=7))
    return str(fields.get("id", "job"))


# -- what is told ----------------------------------------------------------------------------------------


def test_a_run_that_ends_enqueues_a_job_that_knows_all_of_it(store: Store, hire: Hire, clock: Clock) -> None:
    add(store, "pager", "dead", command="page ops")
    run(store, hire, FAIL, max_retries=1, tags=("eu", "nightly"), batch="b")
    [job] = told(store)
    assert (job.command, job.queue, job.state, job.max_retries) == ("page ops", "notifications", "pending", 8)
    assert job.cwd == store.engine.default_cwd()
    assert job.id.startswith("pager:job:")
    event = json.loads(job.env.pop("QUEUECTL_EVENT_JSON"))
    assert job.env == {
        "QUEUECTL_EVENT": "dead",
        "QUEUECTL_EVENT_JOB": "job",
        "QUEUECTL_EVENT_QUEUE": "work",
        "QUEUECTL_EVENT_EXIT_CODE": "3",
        "QUEUECTL_EVENT_ERROR": "exit code 3",
        "QUEUECTL_EVENT_ATTEMPTS": "1",
    }
    now = "2027-01-15T08:00:00.000Z"
    assert event == {
        "type": "job.dead",
        "timestamp": now,
        "data": {
            "id": "job", "queue": "work", "state": "dead", "command": "true", "outcome": "exited",
            "exit_code": 3, "signal": None,
            "error": "exit code 3", "attempts": 1, "max_retries": 1, "run": 1, "batch": "b", "created_at": now,
            "started_at": now, "duration_ms": 7, "next_run_at": None, "tags": ["eu", "nightly"],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "event"),
    [(Exited(0), "completed"), (FAIL, "failed"), (Signalled(9), "failed"), (Cancelled(), ""), (Interrupted(), "")],
)
def test_an_event_is_what_has_become_of_the_job(store: Store, hire: Hire, outcome: Outcome, event: str) -> None:
    add(store)
    run(store, hire, outcome)
    assert [name for _, _, name in heard(store)] == ([event] if event else [])


def test_each_run_is_an_event_of_its_own(store: Store, hire: Hire, clock: Clock) -> None:
    add(store)
    run(store, hire, FAIL, max_retries=2)
    [job] = told(store)
    assert json.loads(job.env["QUEUECTL_EVENT_JSON"])["data"]["next_run_at"] == "2027-01-15T08:00:02.000Z"
    clock.advance(5)
    hire("w2", queues=("work",)).work_off(FAIL)
    assert heard(store) == [("h", "job", "failed"), ("h", "job", "dead")]


def test_a_webhooks_job_holds_no_secret_and_no_path_of_a_machine(store: Store, hire: Hire) -> None:
    add(store, command=None, url="https://example.com/x", secret=SECRET)
    run(store, hire)
    [job] = told(store)
    assert job.command == '"$QUEUECTL_PYTHON" -P -m queuectl hook send h'
    assert (job.cwd, job.no_retry_on) == ("/", ("2", "3"))
    assert SECRET not in repr(job) + repr(store.hooks.all()) + json.dumps(store.hooks.get("h").as_json())
    assert store.hooks.get("h").secret == SECRET


def test_what_is_told_fits_into_an_environment(store: Store, hire: Hire) -> None:
    add(store)
    run(store, hire, command="true '" + "🎉" * 200_000 + "'", tags=tuple(f"{n:0128}" for n in range(500)))
    [job] = told(store)
    assert len(job.env["QUEUECTL_EVENT_JSON"]) < 100_000
    assert job.env["QUEUECTL_EVENT_JSON"].isascii()


# -- whom, and how often ---------------------------------------------------------------------------------


def test_hooks_of_all_jobs_of_a_queue_and_of_those_that_name_them(store: Store, hire: Hire) -> None:
    add(store, "all")
    add(store, "mail-only", queue="mail")
    add(store, "named", only_named=True)
    run(store, hire, id="plain")
    run(store, hire, id="mail", queue="mail", worker="w2")
    run(store, hire, id="names", notify=("named", "mail-only"), worker="w3")
    assert sorted(heard(store)) == [
        ("all", "mail", "completed"),
        ("all", "names", "completed"),
        ("all", "plain", "completed"),
        ("mail-only", "mail", "completed"),
        ("mail-only", "names", "completed"),
        ("named", "names", "completed"),
    ]


def test_a_hook_hears_only_of_its_events_and_not_while_it_is_paused(store: Store, hire: Hire) -> None:
    add(store, "deaths", "dead")
    add(store, "resting")
    store.hooks.pause(["resting"], paused=True)
    run(store, hire)
    assert heard(store) == []
    store.hooks.pause(["resting"], paused=False)
    run(store, hire, id="second", worker="w2")
    assert heard(store) == [("resting", "second", "completed")]


def test_a_notification_tells_of_nothing_itself(store: Store, hire: Hire) -> None:
    add(store)
    run(store, hire)
    worker = hire("w2")
    for outcome in (Exited(0), FAIL):
        enqueue(store, queue=hook.QUEUE)
        worker.work_off(outcome)
    assert len([job for job in told(store) if job.env]) == 1


def test_it_is_told_in_the_transaction_that_ends_the_run(
    store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store)
    enqueue(store, id="job")
    worker = hire()
    claim = worker.claim_one()

    def fail(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr("queuectl.store.claim_settle.follow", fail)
    with pytest.raises(ZeroDivisionError):
        worker.settle(claim)
    assert (store.views.job("job").state, told(store)) == ("processing", [])
    monkeypatch.undo()
    assert worker.settle(claim)
    assert len(told(store)) == 1


def test_a_settle_said_twice_tells_once(store: Store, hire: Hire) -> None:
    add(store)
    enqueue(store)
    worker = hire(queues=("default",))
    claim = worker.claim_one()
    assert worker.settle(claim)
    assert worker.settle(claim), "recognised: the answer to the first was lost"
    assert len(told(store)) == 1


def test_the_same_end_cannot_be_told_twice_whoever_tells_it(store: Store, hire: Hire) -> None:
    add(store)
    run(store, hire)
    with store.engine.write() as tx:
        [(seq,)] = tx.rows("SELECT seq FROM jobs WHERE id = 'job'")
        assert not store.hooks.tell(tx, [{"seq": seq, "state": "completed"}])
    assert len(told(store)) == 1


def test_another_job_that_takes_the_id_of_one_that_is_gone_is_told_of_too(
    store: Store, hire: Hire, clock: Clock
) -> None:
    add(store)
    run(store, hire)
    clock.advance(10)
    with store.engine.write() as tx:
        tx.run("DELETE FROM jobs WHERE id = 'job'")
    run(store, hire, worker="w2")
    assert len(told(store)) == 2


def test_a_run_lost_with_its_worker_is_told_of_when_that_was_the_last_straw(store: Store, hire: Hire) -> None:
    add(store)
    store.set_config("crash_limit", "2")
    enqueue(store, id="job")
    for name in ("w1", "w2"):
        doomed = hire(name, queues=("default",))
        doomed.claim_one()
        doomed.die()
        store.recover(name)
    assert heard(store) == [("h", "job", "dead")]
    assert "worker lost" in told(store)[0].env["QUEUECTL_EVENT_ERROR"]


def test_idle_workers_wake_up_for_it(store: Store, hire: Hire) -> None:
    add(store)
    idle, busy = hire("idle"), hire("busy", queues=("default",))
    enqueue(store)
    claim = busy.claim_one()
    idle.hears()
    busy.settle(claim)
    assert idle.hears()
    assert idle.claim_one().queue == hook.QUEUE


def test_many_that_end_together_are_told_of_each(store: Store, hire: Hire) -> None:
    add(store, "a")
    add(store, "b", "completed")
    worker = hire()
    store.enqueue([NewJob("true", id=f"job-{n}") for n in range(20)])
    claims = worker.claim(20)
    ends = [Exited(0) if n % 2 else FAIL for n in range(20)]
    store.tick(
        worker.id, [(c, after_run(c, e, store.config(), 0), Report()) for c, e in zip(claims, ends, strict=True)]
    )
    assert len(heard(store)) == len(set(heard(store))) == 30


def test_a_cancelled_rest_of_a_batch_does_not_hide_that_a_run_failed(store: Store, hire: Hire) -> None:
    add(store)
    store.enqueue([NewJob("true", id=id, batch="b", max_fails=1, max_retries=n) for id, n in (("x", 1), ("y", 5))])
    worker = hire()
    claims = worker.claim(2)
    store.tick(worker.id, [(claim, after_run(claim, FAIL, store.config(), 0), Report()) for claim in claims])
    assert store.views.job("y").state == "cancelled"
    assert sorted(heard(store)) == [("h", "x", "dead"), ("h", "y", "failed")]


# -- naming them -----------------------------------------------------------------------------------------


def test_a_job_that_names_a_hook_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(Conflict, match='no hook "pagr"') as refused:
        enqueue(store, notify=["pagr"])
    assert "queuectl hook add" in refused.value.hint
    add(store, "pager")
    with pytest.raises(Conflict) as refused:
        store.enqueue([NewJob("true"), NewJob("true", notify=["pager", "pagr"])])
    assert (refused.value.index, refused.value.hint) == (1, 'did you mean "pager"?')
    assert store.views.jobs() == []
    id = enqueue(store, notify=["pager"])
    assert store.views.job(id).notify == ("pager",)


def test_a_schedule_goes_on_when_a_hook_it_names_is_gone(store: Store, clock: Clock) -> None:
    add(store, "pager")
    store.schedules.add("s", "0 * * * *", None, "UTC", {"command": "true", "notify": ["pager"]})
    store.hooks.remove(["pager"])
    clock.advance(3600)
    assert store.schedules.fire() == (True, [])
    assert [job.notify for job in store.views.jobs()] == [("pager",)]


# -- what is done to them --------------------------------------------------------------------------------


def test_a_name_is_given_once(store: Store, open_engine: Callable[[], Engine]) -> None:
    add(store, "h", "dead")
    other = Store(open_engine())
    with pytest.raises(Conflict, match="already"):
        add(other)
    assert [(one.name, one.events) for one in other.hooks.all()] == [("h", ("dead",))]
    other.close()


def test_all_or_none_are_removed(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    with pytest.raises(NotFound, match='"c"'):
        store.hooks.remove(["a", "c"])
    assert len(store.hooks.all()) == 2
    store.hooks.remove(["a", "b", "a"])
    assert store.hooks.all() == []
    with pytest.raises(NotFound):
        store.hooks.get("a")


def test_why_it_rests_is_kept_until_it_goes_on(store: Store) -> None:
    add(store)
    [one] = store.hooks.pause(["h"], paused=True, reason="410 Gone")
    assert (one.paused, one.reason) == (True, "410 Gone")
    [one] = store.hooks.pause(["h"], paused=False)
    assert (one.paused, one.reason) == (False, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"events": ()},
        {"events": ("started",)},
        {"name": "a b"},
        {"name": "x" * 101},
        {"queue": "notifications"},
        {"queue": "q", "only_named": True},
        {"command": " "},
    ],
    ids=str,
)
def test_nonsense_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        store.hooks.add(**{"name": "h", "events": ["dead"], "command": "tell", **fields})
    assert store.hooks.all() == []


def test_the_longest_name_can_be_told(store: Store, hire: Hire) -> None:
    add(store, "x" * hook.LONGEST_NAME)
    run(store, hire, id="y" * 128)
    assert len(told(store)[0].id) <= 128


def test_a_worker_need_not_ask_if_there_are_hooks(store: Store, hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with the news."""
    monkeypatch.setattr(hooks, "Hooks", None)
    run(store, hire)
    with store.engine.read() as tx:
        assert not tx.rows(sql.ANY_HOOK)


def test_a_reset_forgets_them(store: Store) -> None:
    add(store)
    store.reset()
    assert store.hooks.all() == []
