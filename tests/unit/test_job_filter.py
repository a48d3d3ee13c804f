"""What somebody types into a search box."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.jobs.job_filter import QUALIFIERS, Filter, parse


def test_qualifiers_and_text() -> None:
    wanted = Filter(state="dead", queue="mail", tag="x", exit=1, since=3600, text="some text")
    assert parse("queue:mail state:dead some tag:x exit:1 since:1h text") == wanted


def test_quotes_keep_words_together() -> None:
    assert parse('key:"a b" "it\'s: fine"') == Filter(key="a b", text="it's: fine")


def test_what_looks_like_an_address_or_a_time_is_text() -> None:
    assert parse("http://x 10:30") == Filter(text="http://x 10:30")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ('"foo state:dead"', Filter(text="foo state:dead")),
        ('"error: x"', Filter(text="error: x")),
        ('one "a  b" two', Filter(text="one a  b two")),
        ('key:"a b"', Filter(key="a b")),
        ('key:"state:dead" queue:a:b', Filter(key="state:dead", queue="a:b")),
        ("key://x", Filter(key="//x")),
        ('"say ""hi"""', Filter(text='say "hi"')),
        ('tag:"a""b"', Filter(tag='a"b')),
        ('"" ""', Filter()),
        ('"a\r\nb"', Filter(text="a\nb")),
        ("since:100000s", Filter(since=100_000)),
    ],
)
def test_quotation_marks(words: str, wanted: Filter) -> None:
    assert parse(words) == wanted
    assert parse(wanted.words()) == wanted


@pytest.mark.parametrize(
    "words", ["state:dead queue:mail a b", "queue:a:b /usr/bin/x", "since:1h30m", 'key:"a b"', '"10:30"', '"a  b"']
)
def test_what_is_said_again_is_said_as_people_say_it(words: str) -> None:
    assert parse(words).words() == words


typed = st.lists(
    st.tuples(
        st.sampled_from(["", *(f"{name}:" for name in QUALIFIERS), "http:", "a-b:", ":"]),
        st.sampled_from(["", '"']),
        st.one_of(
            st.sampled_from(["dead", "1", "100000s", "3.0004s", "1w", "0.1ms", "36500d", '""', "//x", "state:dead"]),
            st.text(),
        ),
        st.sampled_from(["", " ", "  ", "\n"]),
    ).map(lambda parts: parts[0] + parts[1] + parts[2] + parts[1] + parts[3]),
    max_size=5,
).map("".join)


@given(typed)
@example("1:" + "x" * 998)  # with quotation marks it would be too long
@example("since:100000 " + "x" * 987)
def test_a_filter_can_be_said_again(words: str) -> None:
    try:
        wanted = parse(words)
    except InvalidInput:
        return
    assert parse(wanted.words()) == wanted


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("stat:dead", 'did you mean "state"?'),
        ("error: x", '(text with a colon: "error:…")'),
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
