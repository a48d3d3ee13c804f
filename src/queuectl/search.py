"""Which jobs somebody means who types `queue:mail state:dead exit:1 since:1h text` into a search box. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from queuectl import newjob, times
from queuectl.errors import InvalidInput, did_you_mean
from queuectl.lifecycle import State

EXAMPLE = 'for example queue:mail state:dead exit:1 since:1h "some text"'
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Filter:
    """What a job must be like. What is None may be anything."""

    state: str | None = None
    queue: str | None = None
    tag: str | None = None
    batch: str | None = None
    key: str | None = None
    worker: str | None = None
    exit: int | None = None
    since: float | None = None  # seconds: changed within these
    text: str = ""  # somewhere in its id, command or error, in any case

    def words(self) -> str:
        """As somebody would type it."""
        parts = [
            f"{name}:{_quoted(str(value))}"
            for name in QUALIFIERS
            if name != "since" and (value := getattr(self, name)) is not None
        ]
        if self.since is not None:
            parts.append(f"since:{times.span(self.since).replace(' ', '')}")
        return " ".join([*parts, *(_quoted(word) for word in self.text.split())])

    def but(self, **fields: object) -> Filter:
        """The same, with these fields changed."""
        return replace(self, **fields)  # type: ignore[arg-type]


QUALIFIERS = ("state", "queue", "tag", "batch", "key", "worker", "exit", "since")


def parse(words: str) -> Filter:
    """The filter that somebody means. What has no qualifier is looked for as one piece of text."""
    newjob.text("search", words)
    if len(words) > LONGEST:
        raise InvalidInput("this search is too long", f"use {LONGEST} characters at most")
    found: dict[str, object] = {}
    text = []
    for word in _split(words):
        name, colon, value = word.partition(":")
        if not colon or not name.isidentifier() or value.startswith("//"):
            text.append(word)
        elif name not in QUALIFIERS:
            raise InvalidInput(f'"{name}:" cannot be searched by', did_you_mean(name, list(QUALIFIERS)))
        elif name in found:
            raise InvalidInput(f'"{name}:" is given twice', "keep one of them")
        else:
            found[name] = _value(name, value)
    return Filter(**found, text=" ".join(text))  # type: ignore[arg-type]


def _split(words: str) -> list[str]:
    lexer = shlex.shlex(words, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = lexer.escape = ""
    lexer.quotes = '"'
    try:
        return list(lexer)
    except ValueError:
        raise InvalidInput('a quotation mark (") is never closed', EXAMPLE) from None


def _value(name: str, value: str) -> object:
    if not value:
        raise InvalidInput(f'nothing stands behind "{name}:"', EXAMPLE)
    if name == "state":
        if value not in list(State):
            raise InvalidInput(f'there is no state "{value}"', did_you_mean(value, [str(state) for state in State]))
        return value
    if name == "exit":
        if not (value.isascii() and value.isdigit() and len(value) <= 3):
            raise InvalidInput(f'"{value}" is no exit code', "write a number from 0 to 255")
        return int(value)
    return times.parse_duration(value) if name == "since" else value


def _quoted(word: str) -> str:
    return f'"{word}"' if not word or any(character.isspace() for character in word) else word
