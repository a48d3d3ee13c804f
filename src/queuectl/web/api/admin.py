"""The queue as a whole: workers, dead jobs, settings, numbers, and who did what."""

from __future__ import annotations

from typing import Any

from queuectl import settings
from queuectl.errors import InvalidInput, NotFound
from queuectl.jobs import dead_letters
from queuectl.settings import Number, Setting
from queuectl.store import Store
from queuectl.web import workers
from queuectl.web.api.jobs import cursor, cursor_in
from queuectl.web.api.operation import Call


def list_workers(store: Store, call: Call) -> dict[str, Any]:
    """List the workers: where they run, and which jobs."""
    return {"workers": [worker.as_json() for worker in store.views.workers()]}


def stop_worker(store: Store, call: Call) -> dict[str, Any]:
    """Tell a worker to leave: `drain` after its running jobs, `now` ending those and putting them back."""
    id = call.path["id"]
    workers.stop(store, [id], call.body["how"])
    return {"id": id, "stop": call.body["how"]}


def list_dead(store: Store, call: Call) -> dict[str, Any]:
    """Group the newest dead jobs by what they died of, the largest group first."""
    jobs = store.views.jobs(state="dead", limit=dead_letters.GROUPED)
    return {
        "dead": store.views.counts()["dead"],
        "looked_at": len(jobs),
        "groups": [group.as_json() for group in dead_letters.groups(jobs)],
    }


def list_settings(store: Store, call: Call) -> dict[str, Any]:
    """List all settings with their values and meanings."""
    config = store.config()
    return {"settings": [_shown(setting, config[name]) for name, setting in settings.SETTINGS.items()]}


def get_setting(store: Store, call: Call) -> dict[str, Any]:
    """Get a setting."""
    setting = _setting(call)
    return _shown(setting, store.config()[setting.name])


def put_setting(store: Store, call: Call) -> dict[str, Any]:
    """Change a setting for everyone; running workers see it at once."""
    setting = _setting(call)
    value = call.body["value"]
    value = int(value) if setting.kind is int and value == value // 1 and abs(value) < 2**63 else value
    return _shown(setting, store.set_config(setting.name, repr(setting.check(value)))[1])


def delete_setting(store: Store, call: Call) -> dict[str, Any]:
    """Put a setting back to its default."""
    setting = _setting(call)
    return _shown(setting, store.unset_config(setting.name)[1])


def _setting(call: Call) -> Setting:
    try:
        return settings.find(call.path["key"])
    except InvalidInput as error:
        raise NotFound(error.message, error.hint) from None


def _shown(setting: Setting, value: Number) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": value,
        "default": setting.default,
        "at_least": setting.at_least,
        "at_most": setting.at_most,
        "help": setting.help,
    }


def get_stats(store: Store, call: Call) -> dict[str, Any]:
    """Count the jobs in each state, and tell how the last ones went."""
    return store.views.metrics().as_json()


def list_acts(store: Store, call: Call) -> dict[str, Any]:
    """Tell who did what through this server, the latest first."""
    limit = call.query["limit"]
    acts = store.views.acts(cursor_in(call), limit)
    return {"acts": [act.as_json() for act in acts], "next": cursor(acts[-1].n) if len(acts) == limit else None}


def whoami(store: Store, call: Call) -> dict[str, Any]:
    """Say whose token this is, and what it may do."""
    return {"name": call.user.name, "role": call.user.role.word}
