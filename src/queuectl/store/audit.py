"""The audit: who changed what."""

from __future__ import annotations

from queuectl.store import write_queries as sql

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuectl.store.engine import Transaction

KEPT = 100_000
NAMED = 5  # of the things that something was done to


class Entry:
    """One audit entry for an operation, however many transactions it takes: each adds what it has changed."""

    def __init__(
        self, actor: str | None, action: str, detail: str = "", named: Sequence[str] = (), count: int = 0, n: int = 0
    ) -> None:
        self._actor = actor
        self._action = action
        self._detail = detail
        self._named = named
        self._count = count
        self._n = n  # its number, once it is stored

    def add(self, tx: Transaction, targets: Sequence[str]) -> Entry:
        """Record that these were changed, and return the entry as it is if this transaction commits. Nothing is
        written without an actor, or without targets."""
        if not self._actor or not targets:
            return self
        named = [*self._named, *targets[: NAMED - len(self._named)]]
        count, n = self._count + len(targets), self._n
        more = f" and {count - NAMED} more" if count > NAMED else ""
        target = {"target": ", ".join(named) + more, "now": tx.now}
        if not n:
            entry = {"who": self._actor, "action": self._action, "detail": self._detail, **target}
            [(n,)] = tx.rows(sql.RECORD_ACT, entry)
            tx.run(sql.FORGET_ACTS, {"last": n - KEPT})
        else:
            tx.run(sql.ADD_TO_ACT, {"n": n, **target})
        return Entry(self._actor, self._action, self._detail, named, count, n)
