"""What a user asks for: a job before it is stored. Nothing invalid gets past this file.

A plain class, not a dataclass: `queuectl enqueue` runs in shell loops, and importing dataclasses costs it
more than everything else it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs.dependency_rules import CONDITIONS
from queuectl.settings import SETTINGS, Number, shown
from queuectl.system import times

NAME_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:+-"
NAME_HELP = 'use letters, digits and "._:+-", starting with a letter or digit, 128 at most'
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_LETTERS = (ID_ALPHABET * 8).encode()  # five bits of each byte

ENDS_HELP = 'for example [1, 75, "SIGKILL", "timeout"]'
ON_DUPLICATE = ("refuse", "skip", "replace")
LONGEST_COMMAND = 1 << 20
PRIORITIES = 2**31 - 1
LONGEST_TIMEOUT = 1_000_000_000

# Written by queuectl itself; people who pipe `list --json` back in get told so.
OUTPUT_FIELDS = (
    "state", "attempts", "crashes", "snoozes", "run", "created_at", "updated_at", "started_at", "finished_at",
    "duration_ms", "outcome", "exit_code", "signal", "error", "stdout", "stderr", "progress", "message", "result",
    "log_path", "worker_id",
)  # fmt: skip


class Delay:
    """Milliseconds after the moment in which a job is stored, on the clock of the database."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


class NewJob:
    """A job to enqueue. A field left None takes the queue's default when it is stored."""

    __slots__ = (
        "backoff_base", "batch", "command", "cwd", "depends_on", "env", "id", "key", "key_limit", "max_fails",
        "max_retries", "no_retry_on", "notify", "on_duplicate", "priority", "queue", "retry_on", "run_at", "tags",
        "timeout_seconds", "unique_key",
    )  # fmt: skip

    def __init__(
        self,
        command: str,
        *,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_retries: int | None = None,
        backoff_base: Number | None = None,
        timeout_seconds: Number | None = None,
        run_at: int | Delay | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        tags: tuple[str, ...] | list[str] = (),
        depends_on: tuple[object, ...] | list[object] = (),
        batch: str | None = None,
        max_fails: int | None = None,
        key: str | None = None,
        key_limit: int | None = None,
        retry_on: tuple[object, ...] | list[object] = (),
        no_retry_on: tuple[object, ...] | list[object] = (),
        unique_key: str | None = None,
        on_duplicate: str = "refuse",
        notify: tuple[str, ...] | list[str] = (),
    ) -> None:
        self.command = _command(command)
        self.id = None if id is None else name("id", id)
        self.queue = queue if queue == "default" else name("queue", queue)
        self.priority = _integer("priority", priority, -PRIORITIES, PRIORITIES)
        self.max_retries = None if max_retries is None else _as_setting("max_retries", max_retries)
        self.backoff_base = None if backoff_base is None else _as_setting("backoff_base", backoff_base)
        self.timeout_seconds = None if timeout_seconds is None else _timeout(timeout_seconds)
        self.run_at = run_at
        self.cwd = None if cwd is None else folder(cwd)
        self.env = None if env is None else _env(env)
        self.tags = () if tags == () else _tags(tags)
        self.depends_on = () if depends_on == () else _dependencies(depends_on)
        self.batch = None if batch is None else name("batch", batch)
        self.max_fails = None if max_fails is None else _max_fails(max_fails, self.batch)
        self.key = None if key is None else _key("key", key)
        self.key_limit = None if key_limit is None else _key_limit(key_limit, self.key)
        self.retry_on = () if retry_on == () else ends("retry_on", retry_on)
        self.no_retry_on = () if no_retry_on == () else ends("no_retry_on", no_retry_on)
        self.unique_key = None if unique_key is None else _key("unique_key", unique_key)
        self.on_duplicate = on_duplicate if on_duplicate == "refuse" else _choice(on_duplicate, self.unique_key)
        self.notify = () if notify == () else _notify(notify)

    def due(self, now: int) -> int:
        """When it may run, if it is stored at the moment `now`."""
        if self.run_at is None:
            return now
        return now + self.run_at.ms if isinstance(self.run_at, Delay) else self.run_at


def from_fields(fields: Mapping[str, object], now: Callable[[], int] = times.now_ms) -> NewJob:
    """A job from JSON-like fields, with aliases resolved and every type checked."""
    given: dict[str, object] = {}
    for key, value in fields.items():
        field = ALIASES.get(key, key)
        if field not in FIELDS:
            raise _unknown(key)
        if field in given:
            raise InvalidInput(f'"{key}" and another name of "{field}" are both given', "keep one of them")
        if value is not None:
            given[field] = value
    if "command" not in given:
        raise InvalidInput('the field "command" is missing', 'for example {"command": "echo hello"}')
    if "run_at" in given:
        given["run_at"] = _moment(given["run_at"], now)
    return NewJob(**given)  # type: ignore[arg-type]


FIELDS = frozenset(NewJob.__slots__)
ALIASES = {
    "cmd": "command",
    "base_backoff": "backoff_base",
    "timeout": "timeout_seconds",
    "available_at": "run_at",
    "next_run_at": "run_at",
}


def new_id() -> str:
    """Ten characters of lower-case base32, 50 random bits."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    letters = os.urandom(10 * count).translate(_LETTERS).decode()
    return [letters[start : start + 10] for start in range(0, 10 * count, 10)]


def quote(words: Iterable[str]) -> str:
    """Shell text that runs exactly these words. (shlex.join would load `re`.)"""
    safe = NAME_CHARACTERS + "/@%,"  # no "=": a first word with one would be an assignment
    return " ".join(
        word if word and not word.strip(safe) else "'" + word.replace("'", "'\"'\"'") + "'" for word in words
    )


def number_in(text: str, most: int) -> int | None:
    """The whole number from 1 on that a text says, if it does. (Python refuses to read thousands of digits.)"""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    return int(text) if 1 <= int(text) <= most else None


def name(field: str, value: object) -> str:
    """An id, queue or the like: safe in file names, terminals and URLs."""
    word = text(field, value)
    if not word or word.strip(NAME_CHARACTERS) or not word[0].isalnum() or len(word) > 128:
        raise InvalidInput(f'"{word[:140]}" cannot be used as "{field}"', NAME_HELP)
    return word


def _command(value: object) -> str:
    command = text("command", value)
    if not command.strip():
        raise InvalidInput("the command is empty", "give the shell command to run")
    if len(command) > LONGEST_COMMAND:
        raise InvalidInput("the command is longer than 1 MiB", "put it into a script and enqueue that")
    return command


def text(field: str, value: object) -> str:
    """Text that a shell and every database can take."""
    if not isinstance(value, str):
        raise InvalidInput(f'"{field}" must be text, not {_described(value)}', "put it in quotes")
    if "\0" in value:
        raise InvalidInput(f'"{field}" contains a NUL byte', "no shell can take one; remove it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f'"{field}" is not valid UTF-8', "use UTF-8 text") from None
    return value


def _integer(field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f'"{field}" must be a whole number, not {_described(value)}', "for example 5")
    if not least <= value <= most:
        raise InvalidInput(f'"{field}" is out of range: {shown(value)}', f"it goes from {least} to {most}")
    return value


def _as_setting(field: str, value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(
            f'"{field}" must be a number, not {_described(value)}', f"it takes {SETTINGS[field].range}"
        )
    return SETTINGS[field].check(value)


def _timeout(value: object) -> Number:
    if isinstance(value, str):
        return times.parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f'"timeout_seconds" must be a number, not {_described(value)}', "for example 90")
    if not 0 <= value <= LONGEST_TIMEOUT:
        raise InvalidInput(f'"timeout_seconds" is out of range: {shown(value)}', "give seconds; 0 means no limit")
    return value


def _moment(value: object, now: Callable[[], int]) -> int | Delay:
    if isinstance(value, str):
        delay = times.parse_delay(value)
        return times.parse_moment(value, now()) if delay is None else Delay(delay)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f'"run_at" must be a time, not {_described(value)}', times.MOMENT_HELP)
    if not 0 <= value < 1_000_000_000:  # as a delay, more than 30 years: a Unix time stamp, probably
        raise InvalidInput(f'"run_at" is out of range as a delay in seconds: {shown(value)}', times.MOMENT_HELP)
    return Delay(round(value * 1000))


def folder(value: object) -> str:
    try:
        return os.path.abspath(text("cwd", value))
    except FileNotFoundError:
        raise InvalidInput('"cwd" is relative to a folder that was removed', "give the whole path") from None


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f'"env" must be an object, not {_described(value)}', 'for example {"LANG": "C"}')
    env: dict[str, str] = {}
    for key, content in value.items():
        if not isinstance(key, str) or not text("env", key) or "=" in key:
            raise InvalidInput(f'"{key}" cannot name an environment variable', "use letters, digits and _")
        env[key] = text(f"env.{key}", content)
    return env


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidInput(f'"tags" must be a list, not {_described(value)}', 'for example ["nightly", "eu"]')
    for tag in value:
        word = text("tags", tag)
        if not word or len(word) > 128 or not word.isprintable() or " " in word:
            raise InvalidInput(f"{_described(tag)} cannot be a tag", "a tag is one word, 128 letters at most")
    return tuple(dict.fromkeys(value))


def _notify(value: object) -> tuple[str, ...]:
    """Names of hooks. If there are such the store looks."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidInput(f'"notify" must be a list, not {_described(value)}', 'for example ["pager"]')
    return tuple(dict.fromkeys(name("notify", hook) for hook in value))


def _max_fails(value: object, batch: str | None) -> int:
    if batch is None:
        raise InvalidInput('"max_fails" is given without a "batch"', "say which jobs belong together")
    return _integer("max_fails", value, 1, PRIORITIES)


def _key_limit(value: object, key: str | None) -> int:
    if key is None:
        raise InvalidInput('"key_limit" is given without a "key"', "say which jobs it counts")
    return _integer("key_limit", value, 1, PRIORITIES)


def ends(field: str, value: object) -> tuple[str, ...]:
    """How a run may end, in the words of `lifecycle`: an exit code, a signal, or `timeout`."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(f'"{field}" must be a list, not {_described(value)}', ENDS_HELP)
    return tuple(dict.fromkeys(_one_end(field, word) for word in value))


def _one_end(field: str, value: object) -> str:
    word = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if (code := number_in(word, 255)) is not None:
        return str(code)
    if word.lower() == "timeout":
        return "timeout"
    import signal  # rarely needed, and not light

    name = word.upper() if word.upper().startswith("SIG") else f"SIG{word.upper()}"
    if name in signal.Signals.__members__:
        return signal.Signals[name].name
    raise InvalidInput(f'{_described(value)} cannot stand in "{field}"', ENDS_HELP)


def _key(field: str, value: object) -> str:
    key = text(field, value)
    if not key or len(key) > 128 or not key.isprintable():
        raise InvalidInput(f'{_described(key)} cannot be a "{field}"', "give 1 to 128 printable characters")
    return key


def _choice(value: object, key: str | None) -> str:
    if value not in ON_DUPLICATE:
        raise InvalidInput(f'"on_duplicate" must be one of {", ".join(ON_DUPLICATE)}', f"not {_described(value)}")
    if key is None:
        raise InvalidInput('"on_duplicate" is given without a "unique_key"', "say what must be unique")
    return str(value)


def _dependencies(value: object) -> tuple[tuple[str, str], ...]:
    """Pairs of an id and a condition; a plain id means that the job must complete."""
    example = 'for example ["build", {"id": "test", "condition": "any"}]'
    if not isinstance(value, list | tuple):
        raise InvalidInput(f'"depends_on" must be a list, not {_described(value)}', example)
    found: dict[str, str] = {}
    for entry in value:
        fields = {"id": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, dict) or "id" not in fields or fields.keys() - {"id", "condition"}:
            raise InvalidInput(f'{_described(entry)} cannot stand in "depends_on"', example)
        parent, condition = name("depends_on", fields["id"]), fields.get("condition", "ok")
        if condition not in CONDITIONS:
            raise InvalidInput(f'"condition" must be one of {", ".join(CONDITIONS)}', f"not {_described(condition)}")
        if found.setdefault(parent, condition) != condition:
            raise InvalidInput(f'"{parent}" stands in "depends_on" with two conditions', "keep one of them")
    return tuple(found.items())


def _unknown(key: str) -> InvalidInput:
    if key in OUTPUT_FIELDS:
        return InvalidInput(f'the field "{key}" is written by queuectl, not by you', "leave it out")
    return InvalidInput(f'unknown field "{key}"', did_you_mean(key, sorted(FIELDS | set(ALIASES))))


def _described(value: object) -> str:
    if isinstance(value, str):
        return f'"{value[:80]}"'
    kinds = {bool: "true/false", dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value)) or shown(value)
