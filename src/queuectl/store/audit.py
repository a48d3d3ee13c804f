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
    """One audit entry for an operation, however many transactions it takes: each adds what it has done."""

    def __init__(self, actor: str | None, action: str, detail: str = "") -> None:
        self._actor = actor
        self._action = action
        self._detail = detail
        self._named: list[str] = []
        self._count = 0
        self._n: int | None = None

    def add(self, tx: Transaction, targets: Sequence[str]) -> None:
        """These were changed; nothing is written if that was on behalf of nobody, or if there are none."""
        if not self._actor or not targets:
            return
        self._named += targets[: NAMED - len(self._named)]
        self._count += len(targets)
        more = f" and {self._count - NAMED} more" if self._count > NAMED else ""
        target = {"target": ", ".join(self._named) + more, "now": tx.now}
        if self._n is None:
            entry = {"who": self._actor, "action": self._action, "detail": self._detail, **target}
            [(self._n,)] = tx.rows(sql.RECORD_ACT, entry)
            tx.run(sql.FORGET_ACTS, {"last": self._n - KEPT})
        else:
            tx.run(sql.ADD_TO_ACT, {"n": self._n, **target})
