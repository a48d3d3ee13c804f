"""Dead jobs, sorted by what they died of, and chosen by conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.errors import InvalidInput
from queuectl.jobs import dead_letters
from queuectl.jobs.model import Job
from tests.unit.test_explain import JOB, NOW

DEAD = replace(JOB, state="dead", error="exit code 1", outcome="exited", exit_code=1, finished_at=NOW, tags=("eu",))


def died(stderr: str, **fields: object) -> Job:
    return replace(DEAD, stderr=stderr, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("line 3: timeout after 17 s", "line 44: timeout after 9 s"),
        ("at 0x7fff1234", "at 0xdeadbeef"),
        (
            "request 1b4e28ba-2fa1-11d2-883f-0016d3cca427 failed",
            "request 6ba7b810-9dad-11d1-80b4-00c04fd430c8 failed",
        ),
        ("first\nno space left\n", "something else\n\nno space left\n\n"),
    ],
)
def test_what_differs_only_in_numbers_and_ids_is_the_same_cause(one: str, other: str) -> None:
    assert dead_letters.name_of(died(one)) == dead_letters.name_of(died(other))


def test_other_words_or_another_end_are_another_cause() -> None:
    causes = [died("no space left"), died("no route to host"), died("no space left", exit_code=2)]
    assert len({dead_letters.name_of(job) for job in causes}) == 3


def test_its_own_id_does_not_set_a_job_apart() -> None:
    assert dead_letters.cause_of(died("job abcxyz: bad", id="abcxyz")) == dead_letters.cause_of(
        died("job defuvw: bad", id="defuvw")
    )


def test_groups_come_with_the_largest_first() -> None:
    found = dead_letters.groups([died("a", id="1"), died("b", id="2"), died("b", id="3")])
    assert [(group.cause, [job.id for job in group.jobs]) for group in found] == [
        ("exit code 1: b", ["2", "3"]),
        ("exit code 1: a", ["1"]),
    ]


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("queue=mail", True), ("queue=other", False), ("tag=eu", True), ("tag=us", False), ("exit=1", True),
        ("exit=11", False), ("error=EXIT", True), ("error=no space", True), ("error=nothing", False),
        ("command=tru", True), ("command=false", False), ("since=1h", True), ("signal=9", False),
    ],
)  # fmt: skip
def test_a_condition_chooses(condition: str, fits: bool) -> None:
    assert dead_letters.matching([condition], NOW)(died("no space left")) is fits


def test_a_signal_goes_by_its_number_or_its_name() -> None:
    killed = died("", exit_code=None, signal=9)
    assert all(dead_letters.matching([f"signal={name}"], NOW)(killed) for name in ("9", "KILL", "sigkill", "SIGKILL"))


def test_all_conditions_must_hold() -> None:
    assert dead_letters.matching(["queue=mail", "exit=1"], NOW)(DEAD)
    assert not dead_letters.matching(["queue=mail", "exit=2"], NOW)(DEAD)
    assert not dead_letters.matching(["since=1m"], NOW + 61_000)(DEAD)


@pytest.mark.parametrize("condition", ["", "queue", "queue=", "colour=red", "since=tomorrow"])
def test_a_bad_condition_is_refused(condition: str) -> None:
    with pytest.raises(InvalidInput):
        dead_letters.matching([condition], NOW)


@pytest.mark.parametrize(("rate", "seconds"), [("10/1m", 6), ("1/s", 1), ("4/h", 900), ("100/1s", 0.01)])
def test_a_rate_is_so_many_in_so_long(rate: str, seconds: float) -> None:
    assert dead_letters.spacing(rate) == seconds


@pytest.mark.parametrize("rate", ["", "10", "0/1m", "-1/1m", "x/1m", "10/", "10/never", "1/0s"])
def test_a_bad_rate_is_refused(rate: str) -> None:
    with pytest.raises(InvalidInput):
        dead_letters.spacing(rate)
