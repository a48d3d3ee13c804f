"""Which job is meant."""

from __future__ import annotations

from queuectl.errors import InvalidInput, no_such_job
from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queuectl.store.engine import Engine, Row

SHORTEST = 3  # letters of an id


def resolve(engine: Engine, text: str) -> str:
    """The id meant by an id, a unique beginning of one, or @last."""
    found: list[Row] = []
    with engine.read() as tx:
        if text == "@last":
            found = tx.rows(sql.FIND_LAST)
        elif text.isascii() and text.isprintable():
            found = tx.rows(sql.FIND_EXACT, {"id": text})
            if not found and len(text) >= SHORTEST:
                found = tx.rows(sql.FIND_PREFIX, {"low": text, "high": text + "\x7f"})
    if len(found) > 1:
        raise InvalidInput(f'"{text}" could be {found[0][0]} or {found[1][0]}', "give more of the id's characters")
    if not found:
        raise no_such_job(text)
    return str(found[0][0])
