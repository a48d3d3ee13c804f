"""Retries by outcome, as a user asks for them."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Cli, refused


def test_a_job_says_after_which_ends_it_is_tried_again(q: Cli) -> None:
    q.ok("worker", "start")
    q.ok("enqueue", "--id", "a", "--no-retry-on", "2,sigkill", "--retry-on", "1,2", "exit 2")
    assert q.finished("a")["state"] == "dead"
    assert (q.job("a")["retry_on"], q.job("a")["no_retry_on"]) == (["1", "2"], ["2", "SIGKILL"])
    shown = q.ok("show", "a")
    assert "Retry on:    1 2" in shown
    assert "No retry on: 2 SIGKILL" in shown


def test_a_command_may_ask_for_more_time(q: Cli) -> None:
    q.ok("worker", "start")
    q.ok("config", "set", "backoff_base", "0.01")
    command = "test -e seen && exit 0; touch seen; exit 75"
    q.ok("enqueue", "--id", "a", "--max-retries", "1", command)
    job = q.finished("a")
    assert (job["state"], job["attempts"], job["snoozes"]) == ("completed", 0, 1)
    assert "0 of 1 failed, 1 put off" in q.ok("show", "a")


@pytest.mark.parametrize("ends", ["0", "256", "SIGNOTHING", "maybe", "-1"])
def test_an_end_that_does_not_exist_is_refused(q: Cli, ends: str) -> None:
    refused(q("enqueue", f"--retry-on={ends}", "true"), 2, 'cannot stand in "retry_on"', "for example")
