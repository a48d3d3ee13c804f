"""JSON from outside: what could be read in two ways is refused, and an error says what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable

from queuectl.errors import InvalidInput

Decode = Callable[[str], object]


def decoder() -> Decode:
    """For many texts; for one, `parse` is enough."""
    return json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse_constant).decode


def parse(text: str, decode: Decode | None = None, hint: str = "check the quotes and commas") -> object:
    """The value that a text says; `hint` is for a text that is no JSON."""
    try:
        return (decode or decoder())(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not valid JSON: {error.msg} at column {error.colno}", hint) from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply", "a job is a flat object") from None
    except ValueError as error:  # a number of thousands of digits
        raise InvalidInput(f"not valid JSON: {error}", "use a smaller number") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in pairs:
        if key in fields:
            raise InvalidInput(f'the field "{key}" is given twice', "keep one of them")
        fields[key] = value
    return fields


def _refuse_constant(constant: str) -> object:
    raise InvalidInput(f"{constant} is not a number in JSON", "use a finite number")
