"""The form that makes a job, empty or with all that another one says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from queuectl.errors import Conflict, InvalidInput, NotFound, QueuectlError
from queuectl.jobs import clone, job_spec
from queuectl.store import Store
from queuectl.system import strict_json
from queuectl.web.remote_cwd import from_afar
from queuectl.web.rendering import Ask, Done, Fields, View

TEXTS = tuple(job_spec.FIELDS)
AS_TYPED = ("command", "cwd", "key", "unique_key")
WHOLE = ("priority", "max_retries", "max_fails", "key_limit")
WORDS = ("tags", "retry_on", "no_retry_on", "notify")


def show(store: Store, ask: Ask) -> View:
    source = ask.query.get("clone")
    if source is None:
        return _form({})
    job = store.views.job(source)
    return _form(as_texts(clone.fields_of(job, store.config(), store.views.clock())), clone=job.id)


def _form(texts: dict[str, str], error: QueuectlError | None = None, clone: str = "") -> View:
    shows = {"texts": dict.fromkeys(TEXTS, "") | texts, "error": error, "clone": clone}
    return View("new_job.html", shows, error.http_status if error else 200)


def create(store: Store, ask: Ask, fields: Fields) -> Done | View:
    """Store what the form says; if it cannot be, the same form says why."""
    texts = {name: fields.get(name, [""])[0].replace("\r\n", "\n") for name in TEXTS}
    there: list[str] = []
    try:
        [id] = store.enqueue([job_spec.from_fields(from_afar(store, from_texts(texts)))], skipped=there.append)
    except (InvalidInput, Conflict, NotFound) as error:
        return _form(texts, error, fields.get("clone", [""])[0])
    said = f"Skipped: job {id} has that key already." if there else f"Job {id} enqueued."
    return Done(said, f"/jobs/{id}")


def as_texts(fields: dict[str, Any]) -> dict[str, str]:
    """The fields of a job as a form shows them; `from_texts` reads them back."""
    texts = {name: clone.text(value) for name, value in fields.items() if not isinstance(value, list | dict)}
    for name in WORDS:
        texts[name] = " ".join(fields.get(name, ()))
    texts["depends_on"] = "\n".join(
        " ".join([link["id"]] + [link["condition"]] * (link["condition"] != "ok"))
        for link in fields.get("depends_on", ())
    )
    env = fields.get("env", {})
    plain = all(value.isprintable() and value == value.strip() for value in env.values())
    texts["env"] = "\n".join(f"{name}={value}" for name, value in env.items()) if plain else json.dumps(env)
    return texts


def from_texts(texts: dict[str, str]) -> dict[str, object]:
    """What was typed, for `newjob.from_fields`, which checks it. What is empty is not said."""
    fields: dict[str, object] = {
        name: text if name in AS_TYPED else text.strip() for name, text in texts.items() if text.strip()
    }
    for name in (*WHOLE, "backoff_base"):
        if name in fields:
            fields[name] = _number(name, str(fields[name]))
    for name in WORDS:
        if name in fields:
            fields[name] = str(fields[name]).replace(",", " ").split()
    if "depends_on" in fields:
        fields["depends_on"] = [_dependency(line) for line in _lines(texts["depends_on"])]
    if "env" in fields:
        fields["env"] = _env(texts["env"])
    if texts.get("on_duplicate") == "refuse":
        del fields["on_duplicate"]  # nothing to say, as long as there is no key
    return fields


def _lines(text: str) -> Iterable[str]:
    return (line.strip() for line in text.split("\n") if line.strip())


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if name in WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number"
        raise InvalidInput(f'"{name}" must be {kind}, not "{text[:80]}"', "for example 5") from None


def _dependency(line: str) -> dict[str, str]:
    id, *condition = line.split()
    if len(condition) > 1:
        raise InvalidInput(f'"{line[:80]}" names no job', "write its id, and fail or any behind it if you mean that")
    return {"id": id, **({"condition": condition[0]} if condition else {})}


def _env(text: str) -> object:
    if text.lstrip().startswith("{"):
        return strict_json.parse(text, hint="or write NAME=value, one a line")
    env = {}
    for line in _lines(text):
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidInput(f'"{line[:80]}" sets no variable', "write NAME=value, one a line")
        env[name] = value
    return env
