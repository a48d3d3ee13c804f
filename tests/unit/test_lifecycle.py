"""What follows from what: the pure rules of a job's life."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.jobs.lifecycle import (
    NO_RESOURCES_DELAY,
    Cancelled,
    Exited,
    Interrupted,
    Lost,
    NoResources,
    NotStarted,
    Outcome,
    Settlement,
    Signalled,
    State,
    TimedOut,
    after_run,
    backoff,
    despite_cancel,
    exit_status,
    signal_name,
)
from queuectl.settings import SETTINGS, effective
from tests.unit.conftest import a_claim

CONFIG = effective([])

# Each failing outcome, with the words, exit code and signal that it leaves in the job.
FAILURES: list[tuple[Outcome, str, int | None, int | None]] = [
    (Exited(1), "exit code 1", 1, None),
    (Exited(127), "exit code 127", 127, None),
    (Signalled(9), "killed by signal 9 (SIGKILL)", None, 9),
    (TimedOut(1.5), "timed out after 1.5 s", None, None),
    (TimedOut(90, 15), "timed out after 90 s", None, 15),
    (NotStarted("no such folder"), "could not start: no such folder", None, None),
]
each_failure = pytest.mark.parametrize(("outcome", "error", "exit_code", "number"), FAILURES)


def settled(outcome: Outcome, roll: float = 0, **fields: object) -> Settlement:
    return after_run(a_claim(**fields), outcome, CONFIG, roll)  # type: ignore[arg-type]


# -- outcomes that are not failures ----------------------------------------------------------------------


def test_exit_code_0_completes_the_job() -> None:
    assert settled(Exited(0)) == Settlement(State.COMPLETED, "exited", exit_code=0, reason="exit code 0")


@pytest.mark.parametrize("number", [None, 15])
def test_a_cancelled_run_cancels_the_job_and_counts_nothing(number: int | None) -> None:
    end = settled(Cancelled(number))
    assert (end.state, end.failed, end.crashed, end.signal) == (State.CANCELLED, False, False, number)
    assert end.error == "cancelled while running"


def test_an_operators_shutdown_puts_the_job_back_due_at_once_and_counts_nothing() -> None:
    end = settled(Interrupted(), attempts=2)
    assert (end.state, end.failed, end.crashed, end.delay, end.error) == (State.PENDING, False, False, 0, None)


def test_a_machine_without_room_puts_the_job_back_after_a_pause_and_counts_nothing() -> None:
    end = settled(NoResources("too many open files"), attempts=2)
    assert (end.state, end.failed, end.crashed, end.delay) == (State.PENDING, False, False, NO_RESOURCES_DELAY)
    assert "too many open files" in end.reason


@pytest.mark.parametrize("outcome", [Exited(1), Signalled(9), TimedOut(5), Interrupted(), NoResources("no memory")])
def test_a_job_that_somebody_cancelled_does_not_run_again_however_its_run_ended(outcome: Outcome) -> None:
    end = settled(outcome)
    cancelled = despite_cancel(end)
    assert (cancelled.state, cancelled.exit_code, cancelled.signal) == (State.CANCELLED, end.exit_code, end.signal)
    assert end.reason in cancelled.reason


def test_a_job_that_has_finished_is_not_cancelled_any_more() -> None:
    for end in (settled(Exited(0)), settled(Cancelled(15)), settled(Exited(1), max_retries=1)):
        assert despite_cancel(end) == end


# -- failures --------------------------------------------------------------------------------------------


@each_failure
def test_a_failed_run_is_retried_and_says_why(
    outcome: Outcome, error: str, exit_code: int | None, number: int | None
) -> None:
    end = settled(outcome)
    assert (end.state, end.failed, end.crashed, end.delay) == (State.FAILED, True, False, 2)
    assert (end.error, end.exit_code, end.signal) == (error, exit_code, number)
    assert end.reason == f"{error}; attempt 1 of 3, next in 2 s"


@each_failure
def test_the_last_failed_run_makes_the_job_dead(
    outcome: Outcome, error: str, exit_code: int | None, number: int | None
) -> None:
    end = settled(outcome, attempts=2)
    assert (end.state, end.failed, end.crashed, end.delay) == (State.DEAD, True, False, 0)
    assert (end.error, end.exit_code, end.signal) == (error, exit_code, number)
    assert end.reason == f"{error}; attempt 3 of 3 was the last"


@pytest.mark.parametrize(
    ("max_retries", "attempts", "state"),
    [
        (0, 0, State.DEAD),
        (1, 0, State.DEAD),
        (2, 0, State.FAILED),
        (2, 1, State.DEAD),
        (3, 1, State.FAILED),
        (3, 2, State.DEAD),
        (3, 7, State.DEAD),
    ],
)
def test_a_job_is_dead_when_its_attempts_reach_max_retries(max_retries: int, attempts: int, state: State) -> None:
    assert settled(Exited(1), max_retries=max_retries, attempts=attempts).state is state


@pytest.mark.parametrize(
    ("crashes", "limit", "state"),
    [(0, 3, State.PENDING), (1, 3, State.PENDING), (2, 3, State.DEAD), (0, 1, State.DEAD), (9, 3, State.DEAD)],
)
def test_a_lost_run_counts_as_a_crash_until_the_limit(crashes: int, limit: int, state: State) -> None:
    config = effective([("crash_limit", str(limit))])
    end = after_run(a_claim(crashes=crashes), Lost("w1"), config, 0)
    assert (end.state, end.crashed, end.failed, end.delay) == (state, True, False, 0)
    assert end.error == "worker lost: w1 died while running it"


def test_a_lost_run_spends_no_attempt_even_if_none_is_left() -> None:
    end = settled(Lost("w1"), attempts=2, max_retries=3)
    assert (end.state, end.failed) == (State.PENDING, False)


@settings(deadline=None)
@given(
    st.sampled_from([outcome for outcome, *_ in FAILURES]),
    st.integers(0, 1_000_000),
    st.integers(0, 1_000_000),
    st.floats(0, 1000),
    st.floats(0, 1),
)
def test_every_failure_is_dead_or_has_a_bounded_delay(
    outcome: Outcome, attempts: int, max_retries: int, base: float, roll: float
) -> None:
    end = settled(outcome, roll, attempts=attempts, max_retries=max_retries, backoff_base=base)
    assert end.failed
    assert (end.state is State.DEAD) == (attempts + 1 >= max_retries)
    assert 0 <= end.delay <= CONFIG["backoff_max"]


# -- backoff ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "attempts", "seconds"),
    [(2, 1, 2), (2, 2, 4), (2, 3, 8), (2, 11, 2048), (2, 12, 3600), (3, 2, 9), (1.5, 2, 2.25), (1, 50, 1), (0, 1, 0)],
)
def test_the_delay_is_the_base_to_the_power_of_the_attempts_up_to_the_longest(
    base: float, attempts: int, seconds: float
) -> None:
    assert backoff(base, attempts, longest=3600, jitter=0, roll=0.7) == seconds


def test_a_power_beyond_all_numbers_is_the_longest_delay() -> None:
    assert backoff(1000, 1_000_000, longest=3600, jitter=0, roll=0) == 3600


def test_the_delay_that_a_failed_run_gets_follows_the_settings() -> None:
    config = effective([("backoff_max", "5"), ("backoff_jitter", "0.5")])
    claim = a_claim(attempts=3, max_retries=10, backoff_base=2)
    assert after_run(claim, Exited(1), config, 0).delay == 5
    assert after_run(claim, Exited(1), config, 1).delay == 2.5


BASES = st.floats(0, float(SETTINGS["backoff_base"].at_most))
LONGEST = st.floats(0, float(SETTINGS["backoff_max"].at_most))


@settings(deadline=None)
@given(BASES, st.integers(1, 10**6), LONGEST, st.floats(0, 1), st.floats(0, 1))
def test_jitter_takes_away_its_share_at_most_and_adds_nothing(
    base: float, attempts: int, longest: float, jitter: float, roll: float
) -> None:
    full = backoff(base, attempts, longest, 0, 0)
    delay = backoff(base, attempts, longest, jitter, roll)
    assert full * (1 - jitter) <= delay * (1 + 1e-9)
    assert 0 <= delay <= full <= longest


@settings(deadline=None)
@given(st.floats(1, 1000), st.integers(1, 10**5), LONGEST)
def test_delays_never_shrink_as_attempts_grow(base: float, attempts: int, longest: float) -> None:
    assert backoff(base, attempts, longest, 0, 0) <= backoff(base, attempts + 1, longest, 0, 0)


# -- words and codes -------------------------------------------------------------------------------------


def test_a_signal_is_named_if_it_has_a_name() -> None:
    assert signal_name(signal.SIGTERM) == "signal 15 (SIGTERM)"
    assert signal_name(250) == "signal 250 (SIG250)"


@pytest.mark.parametrize(
    ("outcome", "fields", "status"),
    [
        (Exited(0), {}, 0),
        (Exited(3), {"max_retries": 1}, 3),
        (Signalled(9), {"max_retries": 1}, 137),
        (TimedOut(5, 15), {"max_retries": 1}, 124),
        (TimedOut(5), {"max_retries": 1}, 124),
        (Cancelled(15), {}, 143),
        (Cancelled(), {}, 1),
        (NotStarted("no such folder"), {"max_retries": 1}, 1),
        (Lost("w1"), {"crashes": 2}, 1),
    ],
)
def test_the_exit_status_is_what_a_shell_would_say(outcome: Outcome, fields: dict[str, object], status: int) -> None:
    end = settled(outcome, 0, **fields)
    assert exit_status(end.state, end.outcome, end.exit_code, end.signal) == status


def test_states_are_their_own_names() -> None:
    assert [str(state) for state in State] == [
        "pending", "processing", "completed", "failed", "dead", "cancelled", "blocked",
    ]  # fmt: skip
