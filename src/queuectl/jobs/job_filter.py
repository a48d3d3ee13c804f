"""Which jobs somebody means who types `queue:mail state:dead exit:1 since:1h text` into a search box. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec
from queuectl.jobs.lifecycle import State
from queuectl.system import times

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
    since: float | None = None  # seconds, to a thousandth: changed within these
    text: str = ""  # somewhere in its id, command or error, in any case

    def words(self) -> str:
        """As somebody would type it. `parse` reads it as the same filter."""
        parts = []
        for name in QUALIFIERS:
            if (value := getattr(self, name)) is not None:
                said = times.exactly(round(value * 1000)).replace(" ", "") if name == "since" else str(value)
                parts.append(f"{name}:{_quoted(said) if _parts(said) else said}")
        if self.text:
            plain = " ".join(self.text.split()) == self.text and not set(self.text) & {'"', ":"}
            parts.append(self.text if plain else _quoted(self.text))
        return " ".join(parts)

    def but(self, **fields: object) -> Filter:
        """The same, with these fields changed."""
        return replace(self, **fields)  # type: ignore[arg-type]


QUALIFIERS = ("state", "queue", "tag", "batch", "key", "worker", "exit", "since")


def parse(words: str) -> Filter:
    """The filter that somebody means. What has no qualifier is looked for as one piece of text, its words with one
    space between them; what stands in quotation marks is never a qualifier, and keeps its spaces."""
    job_spec.text("search", words)
    words = words.replace("\r\n", "\n").replace("\r", "\n")  # a form sends every end of a line as both
    if words.count('"') % 2:
        raise InvalidInput('a quotation mark (") is never closed', EXAMPLE)
    if len(words) > LONGEST:
        raise _too_long()
    found: dict[str, object] = {}
    text = []
    for word in _WORD.findall(words):
        name, colon, value = word.partition(":")
        if not colon or not name.isidentifier() or (value.startswith("//") and name not in QUALIFIERS):
            text.append(_unquoted(word))
        elif name not in QUALIFIERS:
            hint = did_you_mean(name, list(QUALIFIERS))
            raise InvalidInput(f'"{name}:" cannot be searched by', f'{hint} (text with a colon: "{name}:…")')
        elif name in found:
            raise InvalidInput(f'"{name}:" is given twice', "keep one of them")
        else:
            found[name] = _value(name, _unquoted(value))
    wanted = Filter(**found, text=" ".join(part for part in text if part))  # type: ignore[arg-type]
    if len(wanted.words()) > LONGEST:  # it must be possible to say it again: in a link, or when it is confirmed
        raise _too_long()
    return wanted


# In quotation marks, two of them stand for one.
_PIECE = re.compile(r'"((?:[^"]|"")*)"')
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"]|"")*")+')


def _unquoted(word: str) -> str:
    return _PIECE.sub(lambda piece: piece[1].replace('""', '"'), word)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _parts(value: str) -> bool:
    """Would it be read as more than one word, or as another?"""
    return '"' in value or any(character.isspace() for character in value)


def _too_long() -> InvalidInput:
    return InvalidInput("this search is too long", f"use {LONGEST} characters at most")


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
    return round(times.parse_duration(value) * 1000) / 1000 if name == "since" else value
