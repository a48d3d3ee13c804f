"""The table of settings: each row's default, range and names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.settings import SETTINGS, Setting, effective, find

# SPEC 5
DEFAULTS = {
    "max_retries": 3,
    "backoff_base": 2,
    "backoff_max": 3600,
    "backoff_jitter": 0,
    "job_timeout": 0,
    "worker_poll_interval": 1,
    "crash_limit": 3,
    "snooze_limit": 20,
    "lease_timeout": 30,
    "kill_grace": 5,
    "output_limit": 2000,
    "log_max_bytes": 10485760,
    "retention_days": 0,
}
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))


def test_the_defaults_are_those_of_the_contract() -> None:
    assert effective([]) == DEFAULTS


@every_setting
def test_a_default_is_in_its_own_range(setting: Setting) -> None:
    assert setting.check(setting.default) == setting.default
    assert setting.parse(str(setting.default)) == setting.default


@every_setting
def test_both_ends_of_the_range_are_in_it_and_what_lies_beyond_is_not(setting: Setting) -> None:
    for end in (setting.at_least, setting.at_most):
        assert setting.parse(str(end)) == end
    for beyond in (setting.at_least - 1, setting.at_most + 1):
        with pytest.raises(InvalidInput):
            setting.parse(str(beyond))


@every_setting
def test_a_setting_says_what_it_is_for_and_what_it_takes(setting: Setting) -> None:
    assert setting.help.endswith(".")
    assert str(setting.at_most) in setting.range


@every_setting
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "nan", "inf", "-inf", "true", "True", "yes", "five", "1,5", "--5", "²", "0x10", "1e400", "9" * 5000,
        "\0", "\ud800", "3 4", "-1",
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_the_range(setting: Setting, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        setting.parse(text)
    assert setting.range in refused.value.hint


@pytest.mark.parametrize("value", [True, False, None, "3", [3], float("nan"), float("inf"), 10**30])
@every_setting
def test_a_value_of_another_type_is_refused(setting: Setting, value: object) -> None:
    with pytest.raises(InvalidInput):
        setting.check(value)


def test_a_number_of_thousands_of_digits_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidInput):
        SETTINGS["max_retries"].check(10**5000)


@pytest.mark.parametrize("text", ["3.0", "2.5", "1e3", "1_000"])
def test_a_whole_number_is_written_as_one(text: str) -> None:
    with pytest.raises(InvalidInput):
        SETTINGS["max_retries"].parse(text)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_retries", "max_retries"),
        ("max-retries", "max_retries"),
        ("MAX-RETRIES", "max_retries"),
        (" max_retries ", "max_retries"),
        ("default_max_retries", "max_retries"),
        ("default-max-retries", "max_retries"),
        ("poll_interval", "worker_poll_interval"),
        ("poll-interval", "worker_poll_interval"),
    ],
)
def test_a_setting_has_several_spellings(name: str, meant: str) -> None:
    assert find(name).name == meant


@pytest.mark.parametrize("name", ["max_retrys", "retries", "backoff", "nonsense", "max retries", "\0", "é" * 1000])
def test_an_unknown_key_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        find(name)
    assert "did you mean" in refused.value.hint or "known are" in refused.value.hint


@pytest.mark.parametrize("name", ["", "  "])
def test_no_key_at_all_is_not_the_first_setting_without_an_alias(name: str) -> None:
    with pytest.raises(InvalidInput):
        find(name)


def test_a_near_miss_is_told_what_was_meant() -> None:
    with pytest.raises(InvalidInput) as refused:
        find("max_retrys")
    assert refused.value.hint == 'did you mean "max_retries"?'


def test_a_hopeless_key_is_told_all_there_are() -> None:
    with pytest.raises(InvalidInput) as refused:
        find("zzz")
    assert all(name in refused.value.hint for name in SETTINGS)


def test_what_is_stored_comes_before_the_default_and_unknown_keys_are_a_newer_versions() -> None:
    config = effective([("max_retries", "7"), ("backoff_base", "1.5"), ("from_the_future", "x")])
    assert config == {**DEFAULTS, "max_retries": 7, "backoff_base": 1.5}


@settings(deadline=None)
@given(st.sampled_from(list(SETTINGS.values())), st.floats(allow_nan=False) | st.integers())
def test_what_is_accepted_is_stored_as_text_and_read_back_the_same(setting: Setting, value: float) -> None:
    try:
        accepted = setting.check(value)
    except InvalidInput:
        return
    assert setting.at_least <= accepted <= setting.at_most
    assert setting.parse(repr(accepted)) == accepted


@settings(deadline=None)
@given(st.sampled_from(list(SETTINGS.values())), st.text())
def test_any_text_is_a_value_or_is_refused(setting: Setting, text: str) -> None:
    try:
        setting.parse(text)
    except InvalidInput:
        pass
