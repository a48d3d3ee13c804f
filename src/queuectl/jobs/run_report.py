"""What a run says of itself: the meaning of what it writes to $QUEUECTL_RESULT. Reading and keeping it is for others.

The text is JSON. An object with `progress`, `message` or `result` sets these; any other value is the result itself.
Several values, one after the other, are updates: what comes later wins.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

LARGEST = 64 * 1024  # bytes
LONGEST_MESSAGE = 500
DEEPEST = 100  # so that whoever reads it back, in whatever depth of his own, can

Said = dict[str, Any]
"""Some of `progress`, `message` and `result`."""

_SPACE = re.compile(r"[ \t\r\n]*")


class Refused(ValueError):
    """Not what it may say; the message tells why."""


def read(data: bytes, cut: bool = False) -> tuple[Said, str]:
    """What this says, as far as it can be read, and what is wrong with it ("" if nothing). Of what was cut only the
    end is there, which is enough if it consists of lines."""
    said: Said = {}
    problem = ""
    try:
        for value in _values(data.decode("utf-8", "replace")):
            for key, item in _parts(value).items():
                try:
                    said[key] = _check(key, item)
                except Refused as error:  # what else it says may be good
                    problem = problem or str(error)
    except Refused as error:
        problem = problem or str(error)
    return said, f"it is larger than {LARGEST // 1024} KiB" if cut and (problem or not said) else problem


def unread(said: Said, problem: str) -> Said:
    """What is kept of a report that was not read in full: whoever looks at the job must learn why."""
    return {**said, "message": _message(f"its result could not be read: {problem}")}


def dumped(said: Said) -> str:
    """As it is stored."""
    known = {key: value for key, value in said.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loaded(report: str | None) -> Said:
    """The same, read back: all three of them, None for what was not said."""
    return {"progress": None, "message": None, "result": None, **(json.loads(report) if report else {})}


def _values(text: str) -> Iterator[Any]:
    """One JSON value after the other. Where one cannot be read the rest means nothing: it may lie inside of it."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = _after_space(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise Refused(f"line {error.lineno} is not valid JSON ({error.msg.removesuffix(' at')})") from None
        except RecursionError:
            raise Refused("it is nested too deeply") from None
        except Refused:
            raise
        except ValueError:  # a number of thousands of digits
            raise Refused("a number in it is too long") from None
        yield value
        at = _after_space(text, end)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _parts(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) and _CHECKS.keys() & value.keys() else {"result": value}


def _check(key: str, value: Any) -> Any:
    if key not in _CHECKS:
        raise Refused(f'"{_text(key)[:50]}" is none of progress, message, result; put it into the result')
    return _CHECKS[key](value)


def _progress(value: Any) -> int | float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise Refused("progress must be a number from 0 to 100")
    return int(value) if value == int(value) else value


def _message(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Refused("message must be text")
    return None if value is None else " ".join(_text(value).split())[:LONGEST_MESSAGE]


def _clean(value: Any, room: int = DEEPEST) -> Any:
    """The value in a form that every database can keep and everyone read back."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("a number in it is too large")
    if not isinstance(value, list | dict):
        return value
    if not room:
        raise Refused("it is nested too deeply")
    if isinstance(value, list):
        return [_clean(item, room - 1) for item in value]
    return {_text(key): _clean(item, room - 1) for key, item in value.items()}


def _text(value: str) -> str:
    """Without what a database cannot keep: NUL, and halves of characters."""
    if not value.isascii():
        value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value.replace("\0", "\ufffd")


def _refuse_constant(constant: str) -> Any:
    raise Refused(f"{constant} is not a number in JSON")


_CHECKS = {"progress": _progress, "message": _message, "result": _clean}
