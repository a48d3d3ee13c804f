"""Settings, kept in the queue itself and seen by running workers at once."""

from __future__ import annotations

import click

from queuectl import settings
from queuectl.cli.app import json_option, with_store
from queuectl.cli.render import emit_json, say, table
from queuectl.cli.streams import changed
from queuectl.settings import SETTINGS
from queuectl.store import Store


@click.group("config")
def config_command() -> None:
    """Look at the settings of this queue and change them."""


@config_command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@with_store
def set_value(store: Store, key: str, value: str) -> None:
    """Change a setting."""
    name, number = store.set_config(key, value)
    changed(f"{name} is set to {number}")
    say(f"{name} = {number}")


@config_command.command("get")
@click.argument("key")
@json_option
@with_store
def get_value(store: Store, key: str, as_json: bool) -> None:
    """Print the value of a setting."""
    name = settings.find(key).name
    value = store.config()[name]
    if as_json:
        emit_json({name: value})
    else:
        say(str(value))


@config_command.command("list")
@json_option
@with_store
def list_values(store: Store, as_json: bool) -> None:
    """List all settings with their values and meanings."""
    config = store.config()
    if as_json:
        emit_json(config)
        return
    rows = [
        [setting.name, str(config[setting.name]), str(setting.default), setting.help] for setting in SETTINGS.values()
    ]
    table(["Setting", "Value", "Default", "Meaning"], rows, stretch=("Meaning",))


@config_command.command("unset")
@click.argument("key")
@with_store
def unset_value(store: Store, key: str) -> None:
    """Put a setting back to its default."""
    name, number = store.unset_config(key)
    changed(f"{name} is set to its default, {number}")
    say(f"{name} = {number} (the default)")
