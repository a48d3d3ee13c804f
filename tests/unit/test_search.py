"""What somebody types into a search box."""

from __future__ import annotations

import pytest

from queuectl.errors import InvalidInput
from queuectl.search import Filter, parse


def test_qualifiers_and_text() -> None:
    wanted = Filter(state="dead", queue="mail", tag="x", exit=1, since=3600, text="some text")
    assert parse("queue:mail state:dead some tag:x exit:1 since:1h text") == wanted


def test_quotes_keep_words_together() -> None:
    assert parse('key:"a b" "it\'s: fine"') == Filter(key="a b", text="it's: fine")


def test_what_looks_like_an_address_or_a_time_is_text() -> None:
    assert parse("http://x 10:30") == Filter(text="http://x 10:30")


@pytest.mark.parametrize("words", ["queue:mail", "state:dead exit:1", 'key:"a b"', "since:1h30m x y"])
def test_a_filter_can_be_said_again(words: str) -> None:
    assert parse(parse(words).words()) == parse(words)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("stat:dead", 'did you mean "state"?'),
        ("state:ded", 'did you mean "dead"?'),
        ("state:", "nothing stands"),
        ("exit:x", "no exit code"),
        ("since:soon", "not a duration"),
        ('"open', "never closed"),
        ("queue:a queue:b", "twice"),
        ("x" * 1001, "too long"),
        ("a\0b", "NUL"),
    ],
)
def test_what_makes_no_sense_is_refused(words: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(words)
    assert hint in f"{refused.value.message} {refused.value.hint}"
