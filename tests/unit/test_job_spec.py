"""A job before it is stored: nothing invalid gets past."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.jobs.job_spec import (
    ALIASES,
    FIELDS,
    ID_ALPHABET,
    LONGEST_COMMAND,
    OUTPUT_FIELDS,
    PRIORITIES,
    NewJob,
    from_fields,
    new_id,
    quote,
)

NOW = 1_800_000_000_000


def made(**fields: object) -> NewJob:
    return from_fields({"command": "true", **fields}, now=lambda: NOW)


def refusal(**fields: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        made(**fields)
    assert refused.value.message
    assert refused.value.hint
    return refused.value


# -- good values -----------------------------------------------------------------------------------------


def test_a_command_alone_leaves_the_rest_to_the_queue() -> None:
    job = made()
    assert {name: getattr(job, name) for name in FIELDS} == {
        "command": "true", "id": None, "queue": "default", "priority": 0, "max_retries": None, "backoff_base": None,
        "timeout_seconds": None, "run_at": None, "cwd": None, "env": None, "tags": (),
        "depends_on": (), "retry_on": (), "no_retry_on": (), "unique_key": None, "on_duplicate": "refuse",
        "batch": None, "max_fails": None, "key": None, "key_limit": None, "notify": (),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "becomes"),
    [
        ("command", " echo  'a b' ", " echo  'a b' "),
        ("command", "echo é 日本 🎉", "echo é 日本 🎉"),
        ("command", "a\nb\tc", "a\nb\tc"),
        ("id", "a", "a"),
        ("id", "9", "9"),
        ("id", "Build.7:x+y-z_1", "Build.7:x+y-z_1"),
        ("id", "a" * 128, "a" * 128),
        ("queue", "mail", "mail"),
        ("priority", 5, 5),
        ("priority", -PRIORITIES, -PRIORITIES),
        ("priority", PRIORITIES, PRIORITIES),
        ("max_retries", 0, 0),
        ("max_retries", 1_000_000, 1_000_000),
        ("backoff_base", 1.5, 1.5),
        ("backoff_base", 0, 0),
        ("timeout_seconds", 90, 90),
        ("timeout_seconds", 0.5, 0.5),
        ("timeout_seconds", "1h30m", 5400),
        ("timeout_seconds", 0, 0),
        ("cwd", "/tmp/../tmp", "/tmp"),
        ("env", {"LANG": "C", "EMPTY": "", "É": "x=y"}, {"LANG": "C", "EMPTY": "", "É": "x=y"}),
        ("tags", ["nightly", "eu", "nightly"], ("nightly", "eu")),
        ("tags", [], ()),
        ("notify", ["pager", "chat", "pager"], ("pager", "chat")),
        ("notify", [], ()),
        ("tags", ["é"], ("é",)),
    ],
)
def test_a_good_value_is_taken(field: str, value: object, becomes: object) -> None:
    assert getattr(made(**{field: value}), field) == becomes


STORED = NOW + 7_000_000  # on the clock of a database that is ahead of ours


@pytest.mark.parametrize(("delay", "ms"), [("90s", 90_000), ("in 5m", 300_000), (90, 90_000), (0.5, 500), ("now", 0)])
def test_a_delay_begins_when_the_job_is_stored(delay: object, ms: int) -> None:
    assert made(run_at=delay).due(STORED) == STORED + ms


@pytest.mark.parametrize("time", ["2027-01-15T09:00:00Z", "2027-01-15 09:00+00:00"])
def test_a_time_is_the_same_on_every_clock(time: str) -> None:
    assert made(run_at=time).due(STORED) == NOW + 3_600_000


def test_a_job_that_names_no_time_is_due_when_it_is_stored() -> None:
    assert made().due(STORED) == STORED


def test_a_relative_folder_is_the_enqueuers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert made(cwd="sub").cwd == str(tmp_path / "sub")


def test_a_relative_folder_in_a_folder_that_was_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refusal(cwd="sub")


@pytest.mark.parametrize("field", sorted(FIELDS - {"command"}))
def test_null_means_not_given(field: str) -> None:
    assert getattr(made(**{field: None}), field) == getattr(made(), field)


@pytest.mark.parametrize(("alias", "field"), ALIASES.items())
def test_an_alias_is_the_field(alias: str, field: str) -> None:
    value: object = "echo hi" if field == "command" else 60
    fields: dict[str, object] = {"command": "true"} if field != "command" else {}
    job = from_fields({**fields, alias: value}, now=lambda: NOW)
    assert (job.due(NOW) == NOW + 60_000) if field == "run_at" else (getattr(job, field) == value)


# -- refused values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["command", "id", "queue", "cwd"])
@pytest.mark.parametrize("value", [5, 1.5, True, False, [], ["x"], {}, {"a": 1}, "a\0b", "\ud800"])
def test_text_is_text(field: str, value: object) -> None:
    assert f'"{field}"' in refusal(**{field: value}).message


@pytest.mark.parametrize("field", ["priority", "max_retries", "backoff_base", "timeout_seconds", "run_at"])
@pytest.mark.parametrize("value", [True, False, [], [1], {}, float("nan"), float("inf"), -float("inf"), 10**30])
def test_a_number_is_a_finite_number(field: str, value: object) -> None:
    assert f'"{field}"' in refusal(**{field: value}).message


@pytest.mark.parametrize("field", ["priority", "max_retries"])
@pytest.mark.parametrize("value", ["5", "", 1.5, 1.0, 0.0])
def test_a_whole_number_is_whole_and_not_in_quotes(field: str, value: object) -> None:
    refusal(**{field: value})


@pytest.mark.parametrize("field", ["priority", "max_retries", "backoff_base", "timeout_seconds", "run_at"])
def test_a_number_of_thousands_of_digits_is_refused_like_any_other(field: str) -> None:
    refusal(**{field: 10**5000})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", PRIORITIES + 1),
        ("priority", -PRIORITIES - 1),
        ("max_retries", -1),
        ("max_retries", 1_000_001),
        ("backoff_base", -0.1),
        ("backoff_base", 1001),
        ("backoff_base", "2"),
        ("timeout_seconds", -1),
        ("timeout_seconds", 1_000_000_001),
        ("timeout_seconds", "soon"),
        ("timeout_seconds", ""),
        ("run_at", -1),
        ("run_at", 1_800_000_000),  # a Unix time stamp
        ("run_at", "whenever"),
        ("run_at", ""),
    ],
)
def test_a_value_out_of_its_range_is_refused(field: str, value: object) -> None:
    refusal(**{field: value})


@pytest.mark.parametrize("command", ["", " ", "\n\t", "\u2003", "x" * (LONGEST_COMMAND + 1)])
def test_a_command_is_neither_blank_nor_endless(command: str) -> None:
    refusal(command=command)


def test_the_command_is_required() -> None:
    for fields in ({}, {"command": None}, {"id": "x"}):
        with pytest.raises(InvalidInput, match='"command" is missing'):
            from_fields(fields)


@pytest.mark.parametrize("field", ["id", "queue"])
@pytest.mark.parametrize(
    "name",
    [
        "", "../../x", "..", "/", "a/b", "a b", " a", "a\n", ".hidden", "-rf", "_x", ":x", "+x", "@last",
        "a@b", "a%b", "é", "aé", "\u0661\u0662", "a\u0661", "\uff41", "²", "a\u200b", "\x1b[31m", "a" * 129, "{}",
        "a'b", 'a"b', "a*", "~", "a\\b",
    ],
)  # fmt: skip
def test_a_name_stays_in_its_alphabet(field: str, name: str) -> None:
    assert f'"{field}"' in refusal(**{field: name}).message


@pytest.mark.parametrize(
    "env",
    [
        "A=1",
        ["A=1"],
        5,
        True,
        {"": "x"},
        {"A=B": "x"},
        {"A\0": "x"},
        {"A": "x\0"},
        {"A": 1},
        {"A": None},
        {"A": ["x"]},
        {1: "x"},
        {"\ud800": "x"},
        {"A": "\ud800"},
    ],
)
def test_an_environment_is_names_and_texts(env: object) -> None:
    refusal(env=env)


@pytest.mark.parametrize(
    "tags",
    [
        "nightly", "", 5, 0, True, False, {}, {"a": 1}, [5], [""], ["a b"], ["a\tb"], ["a\nb"], ["\0"], ["\ud800"],
        ["x" * 129], [None], [["x"]], ["\x1b[31m"], ["a\u00a0b"], ["a\u3000b"],
    ],
)  # fmt: skip
def test_tags_are_a_list_of_single_words(tags: object) -> None:
    refusal(tags=tags)


@pytest.mark.parametrize("notify", ["pager", [""], ["a b"], [7], {"pager": 1}, 7, True], ids=str)
def test_hooks_are_a_list_of_names(notify: object) -> None:
    refusal(notify=notify)


@pytest.mark.parametrize(("alias", "field"), ALIASES.items())
def test_a_field_given_under_two_names_is_refused(alias: str, field: str) -> None:
    with pytest.raises(InvalidInput, match="both given"):
        from_fields({"command": "true", field: "1", alias: "1"})


def test_two_aliases_of_one_field_are_refused() -> None:
    assert "both given" in refusal(available_at="1m", next_run_at="1m").message


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("max_retrys", "max_retries"), ("comand", "command"), ("tag", "tags"), ("time_out", "timeout")],
)
def test_an_unknown_field_is_refused_with_what_was_probably_meant(wrong: str, meant: str) -> None:
    error = refusal(**{wrong: 1})
    assert error.message == f'unknown field "{wrong}"'
    assert error.hint == f'did you mean "{meant}"?'


def test_a_field_like_no_other_is_told_which_there_are() -> None:
    assert all(field in refusal(zzzz=1).hint for field in FIELDS)


@pytest.mark.parametrize("field", OUTPUT_FIELDS)
def test_a_field_that_queuectl_writes_is_refused_with_that_reason(field: str) -> None:
    error = refusal(**{field: None})
    assert "written by queuectl" in error.message
    assert error.hint == "leave it out"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(sorted(FIELDS | set(ALIASES) | set(OUTPUT_FIELDS))) | st.text(max_size=5)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(NAMES, JSON, max_size=4), st.booleans())
def test_any_json_object_is_a_job_or_is_refused_as_bad_input(fields: dict[str, object], with_command: bool) -> None:
    try:
        job = from_fields({"command": "true", **fields} if with_command else fields)
    except InvalidInput:
        return
    assert job.command.strip()
    assert type(job.priority) is int
    assert type(job.due(NOW)) is int


# -- ids and quoting -------------------------------------------------------------------------------------


def test_a_drawn_id_is_ten_characters_of_base32_and_a_valid_one() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    for id in ids:
        assert len(id) == 10
        assert set(id) <= set(ID_ALPHABET)
        assert made(id=id).id == id


def test_every_letter_of_the_alphabet_is_drawn_in_every_place() -> None:
    places = list(zip(*(new_id() for _ in range(2000)), strict=True))
    assert all(set(place) == set(ID_ALPHABET) for place in places)


WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=5)


@settings(deadline=None, max_examples=200)
@given(WORDS)
def test_quoted_words_are_the_same_words_to_a_shell(words: list[str]) -> None:
    assert shlex.split(quote(words)) == words


@settings(deadline=None, max_examples=25)
@given(WORDS)
def test_a_real_shell_agrees(words: list[str]) -> None:
    printed = subprocess.run(["/bin/sh", "-c", quote(["printf", r"%s\0", *words])], capture_output=True, check=True)
    assert printed.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_words_that_need_no_quotes_stay_readable() -> None:
    assert quote(["cp", "-r", "a b", "/tmp/x.y"]) == "cp -r 'a b' /tmp/x.y"
    assert quote(["it's", ""]) == "'it'\"'\"'s' ''"
