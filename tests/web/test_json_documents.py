"""Programs that read queuectl's JSON go on to work: no field is lost, and none changes its value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Cli
from tests.web.json_documents import RECORDED, documents


def test_every_recorded_document_keeps_its_fields_and_values(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())
    q = Cli(tmp_path)
    try:
        found = documents(q)
    finally:
        q.end_all()
    assert found.keys() >= recorded.keys()
    assert differences(recorded, found) == []


def test_a_lost_field_and_a_changed_value_are_differences() -> None:
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": 1, "new": 2}]}) == []
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]}) == [".a[0].b: 1 became 2"]
    assert differences({"a": [{"b": 1}]}, {"a": [{}]}) == [".a[0].b is gone"]
    assert differences({"a": [1]}, {"a": [1, 2]}) == [".a has 2 items instead of 1"]


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """What programs would notice; fields that are new are allowed."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key, value in old.items()
            for line in (differences(value, new[key], f"{place}.{key}") if key in new else [f"{place}.{key} is gone"])
        ]
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return [f"{place} has {len(new)} items instead of {len(old)}"]
        pairs = enumerate(zip(old, new, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{place}[{n}]")]
    return [] if old == new else [f"{place}: {old!r} became {new!r}"]
