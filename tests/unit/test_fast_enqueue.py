"""The quick reading of `enqueue`'s arguments means what click means, or leaves them to click."""

from __future__ import annotations

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.cli import fast_enqueue
from queuectl.cli.enqueue import enqueue_command


def clicks(args: list[str]) -> dict[str, object]:
    """The options as click reads them, without those nobody gave."""
    with enqueue_command.make_context("enqueue", list(args)) as context:
        params = {**context.params, "words": list(context.params["words"])}
    return {key: value for key, value in params.items() if value not in (None, ()) and value is not False}


def agree(args: list[str]) -> bool:
    """Both mean the same; False if the quick one does not understand."""
    options = fast_enqueue.parse(args)
    if options is None:
        return False
    assert options == clicks(args)
    return True


UNDERSTOOD = [
    ["true"],
    ["echo hello"],
    ["cp", "a b", "/tmp"],
    ["--", "cp", "-r", "a b", "/tmp"],
    ["--", "--quiet"],
    ["--", "--"],
    ["--", "x", "--", "-y"],
    ["--", "-"],
    ['{"command": "true"}'],
    [""],
    ["", ""],
    ["a=b"],
    ["=x"],
    ["--quiet", "true"],
    ["true", "--quiet"],
    ["echo", "--quiet", "hello"],
    ["--quiet", "--quiet", "true"],
    ["--id", "build-7", "true"],
    ["--id=build-7", "true"],
    ["--id=a=b", "true"],
    ["--id=", "true"],
    ["--id", "", "true"],
    ["--id", "--quiet", "true"],
    ["--id", "--", "true"],
    ["--id", "-", "true"],
    ["-q", "mail", "true"],
    ["--queue", "mail", "true"],
    ["-q", "-p", "true"],
    ["--notify", "pager", "--notify=chat", "--tag", "x", "true"],
    ["-p", "5", "true"],
    ["-p", "-5", "true"],
    ["--priority", "5", "true"],
    ["--priority=5", "true"],
    ["--priority=-5", "true"],
    ["--priority", " 5 ", "true"],
    ["--priority", "1_000", "true"],
    ["--priority", "+5", "true"],
    ["-p", "1", "-p", "2", "true"],
    ["--max-retries", "0", "true"],
    ["--timeout", "1h30m", "true"],
    ["--at", "tomorrow 9:00", "true"],
    ["--at=09:00", "true"],
    ["--delay", "5m", "true"],
    ["--db", "/tmp/x.db", "true"],
    ["--db=x.db", "--", "true"],
    ["true", "--db", "x.db"],
    ["-q", "mail", "-p", "5", "--max-retries", "2", "--quiet", "--id=x", "--", "echo", "-n", "a b"],
    ["é", "\udcff", "日本"],
]

LEFT_TO_CLICK = [
    [],
    ["--"],
    ["-"],
    ["--quiet"],
    ["true", "-"],
    ["-p5", "true"],
    ["-p=5", "true"],
    ["-qmail", "true"],
    ["-q=mail", "true"],
    ["--quiet=1", "true"],
    ["--quiet=", "true"],
    ["--qui", "true"],
    ["--prio", "5", "true"],
    ["--priority", "five", "true"],
    ["--priority=", "true"],
    ["--priority", "1.5", "true"],
    ["--priority", "9" * 5000, "true"],
    ["--priority"],
    ["true", "--id"],
    ["--json", "true"],
    ["--wait", "true"],
    ["--lines", "-"],
    ["-f", "jobs.jsonl"],
    ["--file=jobs.jsonl"],
    ["--tag"],
    ["--env", "A=1", "true"],
    ["--cwd", "/", "true"],
    ["--backoff-base", "2", "true"],
    ["--help"],
    ["-h"],
    ["-x", "true"],
    ["--unknown", "true"],
    ["ls", "-l"],
    ["---"],
    ["--=x", "true"],
    ["-pq", "true"],
]


@pytest.mark.parametrize("args", UNDERSTOOD, ids=" ".join)
def test_what_it_understands_it_understands_as_click_does(args: list[str]) -> None:
    assert agree(args)


@pytest.mark.parametrize("args", LEFT_TO_CLICK, ids=" ".join)
def test_what_it_does_not_understand_it_leaves_to_click(args: list[str]) -> None:
    assert fast_enqueue.parse(args) is None


WORD = st.sampled_from(
    [
        "true", "a b", "", "-", "--", "=", "x=y", "5", "-5", "1.5", "é", "{}", "--quiet", "--json", "--wait", "-f",
        "-h", "--tag", "--env", "--lines", "--nonsense", "-x", "-p5", "-qp", *fast_enqueue.VALUES,
        *fast_enqueue.FLAGS, *fast_enqueue.LISTS,
    ]
)  # fmt: skip
OPTION = st.tuples(
    st.sampled_from([*fast_enqueue.VALUES, *fast_enqueue.FLAGS, *fast_enqueue.LISTS, "--env", "-z"]),
    st.sampled_from(["=", "=5", "=a b", "==", ""]),
).map("".join)


@settings(deadline=None, max_examples=500)
@given(st.lists(WORD | OPTION | st.text(max_size=4), max_size=6))
def test_the_two_never_disagree(args: list[str]) -> None:
    agree(args)


def test_every_option_of_the_quick_one_is_an_option_of_clicks() -> None:
    known = {
        spelling: (parameter.name, parameter.type.name)
        for parameter in enqueue_command.params
        if isinstance(parameter, click.Option)
        for spelling in parameter.opts
    }
    kinds = {str: ("text", "path"), int: ("integer",)}
    for spelling, (name, kind) in fast_enqueue.VALUES.items():
        assert known[spelling][0] == name
        assert known[spelling][1] in kinds[kind]
    for spelling, name in fast_enqueue.FLAGS.items():
        assert known[spelling] == (name, "boolean")
    for spelling, name in fast_enqueue.LISTS.items():
        assert known[spelling] == (name, "text")
