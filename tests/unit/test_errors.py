"""Errors: each with its exit code, and a hint."""

from __future__ import annotations

import pytest

from queuectl import errors
from queuectl.errors import QueuectlError, did_you_mean


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("QueuectlError", 1, 500),
        ("InvalidInput", 2, 422),
        ("NotFound", 3, 404),
        ("Conflict", 4, 409),
        ("Duplicate", 4, 409),
        ("StoreUnavailable", 5, 503),
        ("StoreReplaced", 5, 503),
        ("TimedOut", 124, 504),
    ],
)
def test_an_error_has_the_exit_code_and_status_of_the_contract(kind: str, code: int, status: int) -> None:
    error = getattr(errors, kind)("what happened", "what to do")
    assert isinstance(error, QueuectlError)
    assert (error.exit_code, error.http_status) == (code, status)
    assert (str(error), error.hint) == ("what happened", "what to do")


def test_an_error_can_be_said_of_a_place_and_stays_the_same_otherwise() -> None:
    error = errors.Duplicate("taken", "choose another", index=3).at("line 17")
    assert type(error) is errors.Duplicate
    assert (error.message, error.hint, error.exit_code) == ("line 17: taken", "choose another", 4)


def test_a_hint_names_the_closest_word_or_all_of_them() -> None:
    assert did_you_mean("comand", ["command", "cwd"]) == 'did you mean "command"?'
    assert did_you_mean("zzz", ["command", "cwd"]) == "known are: command, cwd"
