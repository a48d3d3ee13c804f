"""Which firings of a schedule happen, and what a schedule may be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.schedules import schedule
from queuectl.schedules.cron import between
from queuectl.schedules.schedule import LATE, MADE_UP_AT_ONCE, Schedule, due, job_id, make

NOW = 1_800_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
JOB = {"command": "true"}


def a_schedule(when: str | None = "0 * * * *", every: float | None = None, **fields: str) -> Schedule:
    return make("s", when, every, "UTC", JOB, NOW, **fields)


def test_nothing_is_due_before_its_time() -> None:
    hourly = a_schedule()
    assert hourly.next_at == NOW + HOUR
    assert due(hourly, NOW + HOUR - 1) == ([], None, NOW + HOUR)
    assert due(hourly, NOW + HOUR) == ([NOW + HOUR], None, NOW + 2 * HOUR)


@pytest.mark.parametrize("missed", schedule.MISSED)
def test_a_firing_that_only_waited_for_a_worker_happens(missed: str) -> None:
    every_second = a_schedule("* * * * * *", missed=missed)
    found = due(every_second, NOW + 5_500)
    assert found == ([NOW + n * 1000 for n in range(1, 6)], None, NOW + 6_000)
    hourly = a_schedule(missed=missed)
    assert due(hourly, NOW + HOUR + LATE) == ([NOW + HOUR], None, NOW + 2 * HOUR)


def test_what_was_missed_is_made_up_for_as_the_schedule_says() -> None:
    late = NOW + 3 * HOUR + 10 * MINUTE
    assert due(a_schedule(missed="latest"), late) == ([NOW + 3 * HOUR], NOW + HOUR, NOW + 4 * HOUR)
    assert due(a_schedule(missed="skip"), late) == ([], NOW + HOUR, NOW + 4 * HOUR)
    assert due(a_schedule(missed="all"), late) == (
        [NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR], None, NOW + 4 * HOUR,
    )  # fmt: skip


def test_one_that_was_missed_alone_is_the_latest() -> None:
    assert due(a_schedule(missed="latest"), NOW + HOUR + 2 * LATE) == ([NOW + HOUR], None, NOW + 2 * HOUR)


def test_all_of_very_many_come_in_parts_and_none_twice() -> None:
    waiting = a_schedule("* * * * *", missed="all")
    now = NOW + (2 * MADE_UP_AT_ONCE + 7) * MINUTE
    seen: list[int] = []
    while (found := due(waiting, now)).moments:
        assert len(found.moments) <= MADE_UP_AT_ONCE
        seen += found.moments
        waiting = replace(waiting, next_at=found.next_at)
    assert seen == [NOW + n * MINUTE for n in range(1, 2 * MADE_UP_AT_ONCE + 8)]


def test_the_latest_of_a_year_of_seconds_is_found_at_once() -> None:
    asleep = a_schedule("* * * * * *", missed="latest")
    now = NOW + 365 * 24 * HOUR
    found = due(asleep, now)
    assert found.moments[-1] == now
    assert len(found.moments) <= LATE // 1000 + 1
    assert found.dropped == asleep.next_at


@pytest.mark.parametrize("when", ["* * * 1 1 *", "30 2 29 2 *", "0 0 1 1 *", "*/7 * * * *"])
def test_the_latest_is_found_however_far_back_it_is(when: str) -> None:
    one = make("s", when, None, "Europe/Berlin", JOB, NOW, missed="latest")
    now = NOW + 5 * 365 * 24 * HOUR + 12_345_678
    [*_, last] = due(one, now).moments
    assert last <= now
    following = one.plan.after(last)
    assert following is not None
    assert following > now


@settings(deadline=None)
@given(
    when=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 */3 * * 1"]),
    missed=st.sampled_from(schedule.MISSED),
    steps=st.lists(st.integers(1, 40 * 24 * HOUR), min_size=1, max_size=8),
)
def test_however_often_one_looks_no_firing_happens_twice_and_policies_keep_their_word(
    when: str, missed: str, steps: list[int]
) -> None:
    one = make("s", when, None, "Europe/Berlin", JOB, NOW, missed=missed)
    now, seen = NOW, list[int]()
    for step in steps:
        before, now = now, now + step
        while True:
            found = due(one, now)
            for moment in found.moments:
                assert moment <= now
                if missed == "skip":
                    assert moment >= now - LATE
            seen += found.moments
            one = replace(one, next_at=found.next_at)
            if one.next_at is None or one.next_at > now:
                break
        in_between = between(one.plan, before, now, 10**9)
        if missed == "latest" and in_between:
            assert in_between[-1] in seen
    assert seen == sorted(set(seen))
    if missed == "all":
        assert seen == between(one.plan, NOW, now, 10**9)


def test_an_interval_counts_from_its_beginning() -> None:
    often = a_schedule(None, every=90)
    assert (often.next_at, due(often, NOW + 90_000)) == (NOW + 90_000, ([NOW + 90_000], None, NOW + 180_000))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"when": None}, "how often"),
        ({"when": "* * * * *", "every": 5.0}, "how often"),
        ({"when": "61 * * * *"}, "minute"),
        ({"when": None, "every": 0.5}, "second"),
        ({"when": None, "every": 1e12}, "100 years"),
        ({"name": "a b"}, "schedule"),
        ({"name": "x" * 101}, "too long"),
        ({"zone": "Nowhere/Land"}, "zone"),
        ({"zone": "Nowhere/Land", "when": None, "every": 60.0}, "zone"),
        ({"fields": {}}, "command"),
        ({"fields": {"command": "true", "run_at": "1h"}}, "run_at"),
        ({"fields": {"command": "true", "id": "x"}}, "id"),
        ({"fields": {"command": "true", "nonsense": 1}}, "nonsense"),
        ({"overlap": "maybe"}, "overlap"),
        ({"missed": "some"}, "missed"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, object], word: str) -> None:
    usual = {"name": "s", "when": "0 * * * *", "every": None, "zone": "UTC", "fields": JOB, "now": NOW}
    with pytest.raises(InvalidInput, match=word):
        make(**{**usual, **fields})  # type: ignore[arg-type]


def test_who_wants_all_that_was_missed_wants_them_queued() -> None:
    assert a_schedule(missed="all").overlap == "queue"
    assert a_schedule(missed="all", overlap="skip").overlap == "skip"
    assert a_schedule().overlap == "skip"


def test_the_job_of_a_firing_has_an_id_of_its_own() -> None:
    assert job_id("nightly", NOW) == "nightly:20270115T080000Z"
    assert job_id("x" * 100, NOW) != job_id("x" * 100, NOW + 1000)
