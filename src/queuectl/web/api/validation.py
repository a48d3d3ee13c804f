"""Does a value fit its schema? As much of JSON Schema as the API's own bodies and parameters use, with errors for
people. What a `$ref` stands for is left to the code that knows it: `newjob` says of a job what no schema could."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.jobs import job_spec

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
         "array": "a list", "object": "an object", "null": "null"}  # fmt: skip


def check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Refuse what does not fit."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        words = " or ".join(WORDS[kind] for kind in kinds)
        raise InvalidInput(f'"{name}" must be {words}', _example(schema))
    if "enum" in schema and value not in schema["enum"]:
        known = [choice for choice in schema["enum"] if choice is not None]
        raise InvalidInput(f'"{str(value)[:80]}" is no choice for "{name}"', did_you_mean(str(value)[:80], known))
    if isinstance(value, dict):
        _check_object(name, value, schema)
    elif isinstance(value, list):
        _check_size(name, len(value), "entries", schema.get("minItems", 0), schema.get("maxItems"))
        for item in value:
            check(name, item, schema.get("items", {}))
    elif isinstance(value, str):
        job_spec.text(name, value)
        _check_size(name, len(value), "characters", schema.get("minLength", 0), schema.get("maxLength"))
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise InvalidInput(f'"{name}" is written with what it cannot have', f"it must fit {schema['pattern']}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum", value), schema.get("maximum", value)
        if not least <= value <= most:
            raise InvalidInput(f'"{name}" is out of range', _range(schema))


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    whole = kind == "integer" and isinstance(value, float) and value.is_integer()  # JSON knows no difference
    return whole or isinstance(value, KINDS[kind])


def _check_object(name: str, value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    known = schema.get("properties")
    if known is None:
        return
    for field, content in value.items():
        if field not in known:
            raise InvalidInput(f'unknown field "{field[:80]}"', did_you_mean(field[:80], list(known)))
        check(field, content, known[field])
    for field in schema.get("required", ()):
        if field not in value:
            raise InvalidInput(f'the field "{field}" is missing', "it is needed: see /api/v1")
    if len(value) < schema.get("minProperties", 0):
        raise InvalidInput(f"{name} says nothing", "known are: " + ", ".join(known))


def _check_size(name: str, size: int, of: str, least: int, most: int | None) -> None:
    if size < least or (most is not None and size > most):
        hint = f"it takes {least} to {most:,} {of}" if most is not None else f"it takes {least} {of} at least"
        raise InvalidInput(f'"{name}" has {size:,} {of}', hint)


def _example(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of: " + ", ".join(str(choice) for choice in schema["enum"] if choice is not None)
    return _range(schema) or "see /api/v1"


def _range(schema: Mapping[str, Any]) -> str:
    if "minimum" not in schema:
        return ""
    if "maximum" not in schema:
        return f"it takes {schema['minimum']} or more"
    return f"it takes {schema['minimum']} to {schema['maximum']}"


def from_text(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    """The value of a parameter that came as text, checked."""
    value: Any = text
    if schema["type"] == "integer":
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise InvalidInput(f'"{name}" must be a whole number', _range(schema) or "for example 5")
        value = int(text)
    elif schema["type"] == "number":
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(f'"{name}" must be a number', _range(schema) or "for example 5") from None
        if value != value:
            raise InvalidInput(f'"{name}" must be a number', _range(schema))
    check(name, value, schema)
    return value
