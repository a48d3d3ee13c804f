"""The plain spellings of `enqueue`, which scripts call in loops, without loading click.

What is not understood here is left to click, which knows every spelling and has the error messages. A test holds
the two to the same meaning.
"""

from __future__ import annotations

from queuectl.cli import enqueue_core

VALUES = {
    "--db": ("db", str),
    "--id": ("id", str),
    "--queue": ("queue", str),
    "-q": ("queue", str),
    "--priority": ("priority", int),
    "-p": ("priority", int),
    "--max-retries": ("max_retries", int),
    "--timeout": ("timeout", str),
    "--at": ("at", str),
    "--delay": ("delay", str),
    "--key": ("key", str),
    "--unique": ("unique", str),
    "--on-duplicate": ("on_duplicate", str),
}
LISTS = {"--after": "after", "--tag": "tags", "--notify": "notify"}
FLAGS = {"--quiet": "quiet"}


def enqueue(args: list[str]) -> int | None:
    """Carry out a plain `enqueue`. None if it takes more than this to understand it."""
    options = parse(args)
    return None if options is None else enqueue_core.submit(**options)  # type: ignore[arg-type]


def parse(args: list[str]) -> dict[str, object] | None:
    options: dict[str, object] = {}
    lists: dict[str, tuple[str, ...]] = {}
    words: list[str] = []
    rest = iter(args)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            words += rest
        elif word == "-" or (word.startswith("-") and name not in VALUES | FLAGS | LISTS):
            return None
        elif name in FLAGS and not equals:
            options[FLAGS[name]] = True
        elif name in LISTS:
            item = value if equals else next(rest, None)
            if item is None:
                return None
            lists[LISTS[name]] = (*lists.get(LISTS[name], ()), item)
        elif name in VALUES and word.startswith("--" if equals else "-"):
            key, kind = VALUES[name]
            try:
                options[key] = kind(value if equals else next(rest))
            except (StopIteration, ValueError):
                return None
        elif word.startswith("-"):
            return None
        else:
            words.append(word)
    return {**options, **lists, "words": words} if words else None
