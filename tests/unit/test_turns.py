"""Which queue a worker takes its next job from."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.queues.selection import Turns, described, serves

Due = dict[str, list[tuple[int, int, str]]]


def due(**queues: int) -> Due:
    """So many due jobs in each; the later a queue is named, the older its jobs."""
    start = 1000 * len(queues)
    return {
        name: [(0, start - 1000 * place + n, name) for n in range(count)]
        for place, (name, count) in enumerate(queues.items())
    }


def names(rows: list[tuple[int, int, str]]) -> str:
    return "".join(row[2] for row in rows)


def test_without_words_the_highest_priority_goes_first_then_the_oldest() -> None:
    offers: Due = {"a": [(-5, 9, "a"), (0, 3, "a")], "b": [(-5, 2, "b"), (0, 1, "b")]}
    assert Turns({}).pick(offers, 9) == [(-5, 2, "b"), (-5, 9, "a"), (0, 1, "b"), (0, 3, "a")]
    assert len(Turns({}).pick(offers, 3)) == 3


def test_a_strict_order_takes_from_a_queue_when_those_before_it_are_empty() -> None:
    turns = Turns.parse(["--strict", "a", "b", "c"])
    assert names(turns.pick(due(a=2, b=2, c=2), 5)) == "aabbc"
    assert names(turns.pick(due(a=0, b=1, c=2), 5)) == "bcc"


def test_weights_are_shares_of_the_turns_spread_evenly() -> None:
    turns = Turns.parse(["a=5", "b=1", "c=1"])
    assert names(turns.pick(due(a=9, b=9, c=9), 7)) == "aabacaa"
    one_by_one = Turns.parse(["a=5", "b=1", "c=1"])
    assert "".join(names(one_by_one.pick(due(a=9, b=9, c=9), 1)) for _ in range(7)) == "aabacaa"


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 7))
def test_over_many_turns_each_gets_its_weight(weights: list[int], slots: int) -> None:
    queues = {f"q{n}": weight for n, weight in enumerate(weights)}
    turns = Turns.parse([f"{name}={weight}" for name, weight in queues.items()])
    seen: Counter[str] = Counter()
    for _ in range(10 * sum(weights)):
        seen.update(row[2] for row in turns.pick(due(**dict.fromkeys(queues, slots)), slots))
    if slots == 1:
        assert seen == {name: 10 * weight for name, weight in queues.items()}
    assert sum(seen.values()) == 10 * sum(weights) * slots


def test_a_queue_without_jobs_leaves_its_turns_to_others_and_saves_none_up() -> None:
    turns = Turns.parse(["a=3", "b=1"])
    assert names(turns.pick(due(a=0, b=50), 50)) == "b" * 50
    assert Counter(names(turns.pick(due(a=80, b=80), 80))) == {"a": 60, "b": 20}


@pytest.mark.parametrize("words", [[], ["a"], ["a", "b"], ["a=3", "b=1"], ["a=1", "b=1"], ["--strict", "b", "a"]])
def test_its_words_mean_the_same_again(words: list[str]) -> None:
    assert list(Turns.parse(words).words) == words
    assert Turns.parse(Turns.parse(words).words).words == tuple(words)


@pytest.mark.parametrize(
    "words",
    [
        ["a=0"],
        ["a=-1"],
        ["a=x"],
        ["a="],
        ["a=1001"],
        ["=3"],
        ["--strict", "a"],
        ["--strict", "a=2", "b"],
        ["a=1", "a=2"],
        ["a=" + "0" * 9 + "1" * 50],
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidInput):
        Turns.parse(words)


def test_how_it_is_shown_and_whom_it_serves() -> None:
    assert [described(words) for words in ([], ["a", "b=3"], ["--strict", "a", "b"])] == ["all", "a b=3", "a > b"]
    assert serves([], "x")
    assert serves(["a=3", "b"], "a")
    assert serves(["--strict", "a", "b"], "b")
    assert not serves(["a=3", "b"], "a=3")
