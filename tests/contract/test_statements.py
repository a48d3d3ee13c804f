"""Every statement of the store is one that the engine understands."""

from __future__ import annotations

import re

import pytest

from queuectl.store import Store, read_queries, write_queries

FRAGMENTS = {"JOB_COLUMNS"}
STATEMENTS = {
    name: text
    for name, text in {**vars(write_queries), **vars(read_queries)}.items()
    if name.isupper() and isinstance(text, str) and not name.startswith("_") and name not in FRAGMENTS
}
STATEMENTS |= {f"WIPE {table}": text for table, text in write_queries.WIPE.items()}
STATEMENTS |= {f"BATCH {table}": text for table, text in write_queries.BATCH.items()}
for ways in ("LOOK", "FITTING", "FITTING_IDS", "FITTING_COUNT"):
    STATEMENTS |= {f"{ways} {way}": text for way, text in getattr(read_queries, ways).items()}


def test_none_is_overlooked() -> None:
    assert len(STATEMENTS) > 40
    assert {"CLAIM", "SETTLE", "PROMOTE_DUE", "AHEAD_OF"} <= STATEMENTS.keys()


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_engine_can_prepare_it(store: Store, name: str) -> None:
    text = STATEMENTS[name]
    lists = set(re.findall(r"{among:(\w+)}", text))
    names = set(re.findall(r"(?<![:\w]):([a-z_]+)", text))
    each = set(re.findall(r"{each:(\w+)}", text))
    params: dict[str, object] = {name: [] if name in lists else None for name in lists | names | each}
    with store.engine.read() as tx:
        if each:
            tx.each("EXPLAIN " + text, [params])
        else:
            assert tx.rows("EXPLAIN " + text, params)
