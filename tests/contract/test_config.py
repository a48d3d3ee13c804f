"""Settings in the database: for everyone, at once, and never nonsense."""

from __future__ import annotations

import pytest

from queuectl.errors import InvalidInput
from queuectl.settings import SETTINGS, Setting
from queuectl.store import Store
from tests.contract.conftest import Hire


def test_an_untouched_queue_has_the_defaults(store: Store) -> None:
    assert store.config() == {name: setting.default for name, setting in SETTINGS.items()}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_every_setting_can_be_set_seen_by_others_and_unset(
    store: Store, other_store: Store, setting: Setting
) -> None:
    for value in (setting.at_most, setting.at_least):
        assert store.set_config(setting.name, str(value)) == (setting.name, value)
        assert other_store.config()[setting.name] == value
    assert store.unset_config(setting.name) == (setting.name, setting.default)
    assert other_store.config()[setting.name] == setting.default


def test_all_spellings_of_a_key_are_one_key(store: Store) -> None:
    for spelling, value in (("max-retries", 4), ("default_max_retries", 5), ("MAX_RETRIES", 6)):
        store.set_config(spelling, str(value))
        assert store.config()["max_retries"] == value
    store.unset_config("default-max-retries")
    assert store.config()["max_retries"] == 3


@pytest.mark.parametrize(
    ("key", "value"), [("max_retries", "-1"), ("max_retries", "many"), ("backoff_jitter", "1.1"), ("nonsense", "1")]
)
def test_a_bad_key_or_value_is_refused_and_nothing_is_stored(store: Store, key: str, value: str) -> None:
    before = store.config()
    with pytest.raises(InvalidInput):
        store.set_config(key, value)
    assert store.config() == before


def test_a_bad_key_cannot_be_unset(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.unset_config("nonsense")


def test_unsetting_what_was_never_set_is_fine(store: Store) -> None:
    assert store.unset_config("kill_grace") == ("kill_grace", 5)


@pytest.mark.parametrize("value", ["0.1", "1e-05", "0.30000000000000004", "3"])
def test_a_fraction_comes_back_as_it_was(store: Store, value: str) -> None:
    store.set_config("backoff_max", value)
    assert store.config()["backoff_max"] == float(value)


def test_a_change_wakes_the_workers(store: Store, hire: Hire) -> None:
    worker = hire()
    store.set_config("kill_grace", "1")
    assert worker.hears()
    store.unset_config("kill_grace")
    assert worker.hears()
