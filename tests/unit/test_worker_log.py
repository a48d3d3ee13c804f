"""A log line is one line: an event and its fields."""

from __future__ import annotations

import os

import pytest

from queuectl.worker.log import Log


def test_a_line_has_a_time_a_name_an_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    Log("worker=w1", chatty=False).tell("run ended", job="k3f9", run=3, reason="exit code 1", empty="")
    time, rest = capsys.readouterr().err.split(" ", 1)
    assert time.endswith("Z")
    assert rest == "worker=w1 run ended job=k3f9 run=3 reason='exit code 1' empty=''\n"


def test_no_value_can_break_the_line_or_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Log("worker=w1", chatty=False).tell("run ended", reason="a\nb\x1b[2J\u202e")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()


def test_only_a_chatty_log_tells_of_what_goes_well(capsys: pytest.CaptureFixture[str]) -> None:
    Log("w", chatty=False).mention("run started")
    assert capsys.readouterr().err == ""
    Log("w", chatty=True).mention("run started")
    assert "run started" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", full)
        Log("w", chatty=True).tell("run ended")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # what is left in its buffer has to go somewhere
