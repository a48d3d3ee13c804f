"""What a run may say of itself, and that nothing it writes can do harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuectl.jobs import run_report
from queuectl.jobs.run_report import DEEPEST, LARGEST, LONGEST_MESSAGE, Said, read


def said(text: str) -> Said:
    """What a text says that is good throughout."""
    found, problem = read(text.encode())
    assert problem == ""
    return found


# -- what it means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", {}),
        (" \n\t\r\n", {}),
        ('{"progress": 40, "message": "halfway", "result": [1, {"a": null}]}',
         {"progress": 40, "message": "halfway", "result": [1, {"a": None}]}),
        ('{"progress": 0}', {"progress": 0}),
        ('{"progress": 99.5}', {"progress": 99.5}),
        ('{"result": {"progress": 900}}', {"result": {"progress": 900}}),
        ('{"rows": 7}', {"result": {"rows": 7}}),
        ("{}", {"result": {}}),
        ("[1, 2]", {"result": [1, 2]}),
        ('"text"', {"result": "text"}),
        ("42\n", {"result": 42}),
        ("false", {"result": False}),
        ("null", {"result": None}),
        ('{"progress": 10, "message": "a"}\n{"progress": 20}\n', {"progress": 20, "message": "a"}),
        ('{"progress": 10}{"message": "b"}  [3]', {"progress": 10, "message": "b", "result": [3]}),
        ('{\n  "progress": 1,\n  "result": {\n    "a": 2\n  }\n}\n', {"progress": 1, "result": {"a": 2}}),
        ('{"progress": 10, "message": "a"}\n{"message": null}', {"progress": 10, "message": None}),
        ('{"message": "ünï→🎈 \\ud83c\\udf88"}', {"message": "ünï→🎈 🎈"}),
    ],
)  # fmt: skip
def test_a_text_means_this(text: str, meaning: Said) -> None:
    assert said(text) == meaning


def test_a_whole_number_is_one() -> None:
    assert repr(said('{"progress": 4e1}')["progress"]) == "40"
    assert repr(said('{"progress": 100.0}')["progress"]) == "100"


def test_a_message_is_one_line_and_not_too_long() -> None:
    assert said('{"message": " two\\nlines\\r\\n\\tand more "}') == {"message": "two lines and more"}
    assert said(json.dumps({"message": "x" * 1000})) == {"message": "x" * LONGEST_MESSAGE}


@pytest.mark.parametrize(
    ("text", "why", "kept"),
    [
        ('{"progress": 101}', "from 0 to 100", {}),
        ('{"progress": -0.1}', "from 0 to 100", {}),
        ('{"progress": 1e999}', "from 0 to 100", {}),
        ('{"progress": "40"}', "from 0 to 100", {}),
        ('{"progress": true}', "from 0 to 100", {}),
        ('{"message": 7}', "message must be text", {}),
        ('{"progress": 101, "message": "a"}', "from 0 to 100", {"message": "a"}),
        ('{"progress": 1, "eta": 5}', '"eta" is none of', {"progress": 1}),
        ('{"progress": 1}\n{"progress": 2', "line 2 is not valid JSON", {"progress": 1}),
        ('{"progress": 1}\nhello\n{"progress": 2}', "line 2 is not valid JSON", {"progress": 1}),
        ('{"progress": 101}\n{"progress": 2}', "from 0 to 100", {"progress": 2}),
        ("NaN", "NaN is not a number", {}),
        ("[1, -Infinity]", "-Infinity is not a number", {}),
        ("[1e999]", "too large", {}),
        ("1" * 5000, "too long", {}),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested too deeply", {}),
        ("[" * 30_000 + "]" * 30_000, "nested too deeply", {}),
        ('{"a":' * 10_000, "nested too deeply", {}),
        (b"\xff\xfe", "line 1 is not valid JSON", {}),
        (b'{"message": "a\0b"}', "line 1 is not valid JSON", {}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_the_rest_is_kept(text: str | bytes, why: str, kept: Said) -> None:
    data = text.encode() if isinstance(text, str) else text
    found, told = read(data)
    assert why in told
    assert found == kept


def test_of_what_was_cut_the_end_counts_if_it_consists_of_lines() -> None:
    assert read(b'{"progress": 3}\n{"progress": 4}\n', cut=True) == ({"progress": 4}, "")
    assert read(b"}]\n", cut=True) == ({}, "it is larger than 64 KiB")
    assert read(b"  ", cut=True) == ({}, "it is larger than 64 KiB")


def test_what_is_as_large_and_as_deep_as_allowed_is_read() -> None:
    assert said('"' + "x" * (LARGEST - 2) + '"') == {"result": "x" * (LARGEST - 2)}
    assert said("[" * DEEPEST + "]" * DEEPEST)["result"]


def test_whoever_looks_at_the_job_learns_what_was_wrong() -> None:
    assert run_report.unread({"progress": 3, "message": "x"}, "why") == {
        "progress": 3, "message": "its result could not be read: why",
    }  # fmt: skip


# -- what is kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ['"a\\u0000b\\ud800c"', '{"a\\u0000": ["\\udfff\\ud800"]}', '{"message": "\\u0000\\ud800"}']
)
def test_what_a_database_cannot_keep_becomes_a_mark(text: str) -> None:
    kept = run_report.dumped(said(text))
    assert "\ufffd" in kept
    assert "\\u0000" not in kept
    kept.encode()


def test_what_was_not_said_is_none() -> None:
    assert run_report.loaded(None) == {"progress": None, "message": None, "result": None}
    assert run_report.loaded(run_report.dumped({"progress": None, "result": [None]})) == {
        "progress": None, "message": None, "result": [None],
    }  # fmt: skip


def json_with(numbers: st.SearchStrategy[float], text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | numbers | text,
        lambda inner: st.lists(inner) | st.dictionaries(text, inner),
        max_leaves=10,
    )


finite = st.floats(allow_nan=False, allow_infinity=False)
keepable = json_with(finite, st.text(st.characters(codec="utf-8", exclude_characters="\0")))
json_values = json_with(st.floats(), st.text(st.characters()))
reports = st.dictionaries(st.sampled_from(["progress", "message", "result", "two\nlines"]), json_values)
texts = (
    st.binary()
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(json_values | reports).map(lambda values: "\n".join(map(json.dumps, values)).encode())
    | st.text('[]{}":,\\u0d8e1n ').map(str.encode)
)


@given(texts, st.integers(0, 200))
@example(b'"\\ud800', 8)
@settings(max_examples=500, deadline=None)
def test_no_text_can_do_harm(data: bytes, cut: int) -> None:
    """Whatever is written, and wherever it breaks off: it is read or refused, and what is kept can be read back."""
    for text in (data, data[:cut]):
        found, problem = read(text)
        kept: str = run_report.dumped(run_report.unread(found, problem) if problem else found)
        assert "\0" not in kept
        kept.encode()
        back: dict[str, Any] = json.loads(kept, parse_constant=pytest.fail)
        assert back == {key: value for key, value in run_report.loaded(kept).items() if value is not None}
        assert back.keys() <= {"progress", "message", "result"}
        assert 0 <= back.get("progress", 0) <= 100
        assert len(back.get("message", "")) <= LONGEST_MESSAGE
        assert "\n" not in back.get("message", "")


@given(keepable)
@settings(deadline=None)
def test_a_result_comes_back_as_it_was(value: Any) -> None:
    assert run_report.loaded(run_report.dumped(said(json.dumps({"result": value}))))["result"] == value
