"""Waiting for many things at once: in the order they came, and not for what nobody wants to hear any more."""

from __future__ import annotations

import os
import select
import time

import pytest

from queuectl.worker.poller import Ears


@pytest.fixture(params=["epoll", "poll"])
def ears(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ears:
    if request.param == "poll":  # as on macOS
        monkeypatch.delattr(select, "epoll")
    return Ears()


def test_what_has_come_is_told_to_whoever_asked(ears: Ears) -> None:
    heard: list[int] = []
    pipes = {name: os.pipe() for name in "abc"}
    for reader, _ in pipes.values():
        ears.turn_to(reader, heard.append)
    b, c = pipes["b"][0], pipes["c"][0]
    os.write(pipes["b"][1], b"!")
    ears.listen(10)
    assert heard == [b]
    os.close(pipes["c"][1])  # an end is news as well
    ears.listen(10)
    assert sorted(heard) == sorted([b, b, c])
    for reader, writer in pipes.values():
        ears.turn_from(reader)
        os.close(reader)
        if writer != pipes["c"][1]:
            os.close(writer)


def test_the_first_to_come_is_told_first() -> None:
    ears, heard = Ears(), list[int]()
    first, second = os.pipe(), os.pipe()
    ears.turn_to(first[0], heard.append)
    ears.turn_to(second[0], heard.append)
    os.write(second[1], b"!")
    os.write(first[1], b"!")
    ears.listen(10)
    assert heard == [second[0], first[0]]
    for file in (*first, *second):
        os.close(file)


def test_whoever_turned_away_hears_nothing_more_even_in_the_same_round(ears: Ears) -> None:
    heard: list[str] = []
    first, second = os.pipe(), os.pipe()

    def deafen(name: str, other: int) -> None:
        heard.append(name)
        os.close(other)
        ears.forget(other)

    ears.turn_to(first[0], lambda _: deafen("first", second[0]))
    ears.turn_to(second[0], lambda _: deafen("second", first[0]))
    os.write(first[1], b"!")
    os.write(second[1], b"!")
    ears.listen(10)
    assert len(heard) == 1
    os.close(first[1])
    os.close(second[1])
    os.close(first[0] if heard == ["first"] else second[0])


def test_who_has_closed_its_file_is_not_called_again(ears: Ears) -> None:
    heard: list[int] = []

    def take(file: int) -> bool:
        heard.append(file)
        os.close(file)
        return False

    reader, writer = os.pipe()
    ears.turn_to(reader, take)
    os.close(writer)
    ears.listen(10)
    again, writer = os.pipe()  # gets the same number
    assert again == reader
    os.write(writer, b"!")
    ears.listen(0)
    assert heard == [reader]
    os.close(again)
    os.close(writer)


def test_if_nothing_comes_the_time_passes(ears: Ears) -> None:
    began = time.monotonic()
    ears.listen(0.05)
    assert time.monotonic() - began >= 0.045
