"""From which queue a worker takes its next job. Pure but for whose turn it is."""

from __future__ import annotations

from queuectl.errors import InvalidInput
from queuectl.jobs import job_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Rows = Sequence[tuple[Any, ...]]
    """Due jobs of one queue, in their order. Each begins with its negative priority and its number."""

STRICT = "--strict"  # no queue can have this name
HEAVIEST = 1000


class Turns:
    """Which queues a worker serves, and how it chooses between them.

    Without more words the highest priority goes first, then the oldest, whichever queue it is in. Strict: a queue
    gets its turn when those named before it are empty. With weights, each gets its share of the turns while it has
    jobs.
    """

    def __init__(self, weights: Mapping[str, int], weighted: bool = False, strict: bool = False) -> None:
        self.names = tuple(weights)
        self.strict = strict
        self._weights = dict(weights)
        self._weighted = weighted
        self._credit = dict.fromkeys(self.names, 0)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Turns:
        """From the words of a user, `mail=3 default=1` or `--strict mail default`; no words mean all queues."""
        weights: dict[str, int] = {}
        strict, weighted = STRICT in words, any("=" in word for word in words)
        for word in words:
            if word == STRICT:
                continue
            name, mark, number = word.partition("=")
            weight = job_spec.number_in(number, HEAVIEST) if mark else 1
            if weight is None:
                raise InvalidInput(f'the weight of "{name}" must be 1 to {HEAVIEST}', f"for example {name}=3")
            if weights.setdefault(job_spec.name("queue", name), weight) != weight:
                raise InvalidInput(f'the queue "{name}" has two weights', "keep one of them")
        if strict and weighted:
            raise InvalidInput("weights and a strict order are both given", "keep one of them")
        if strict and len(weights) < 2:
            raise InvalidInput("a strict order needs several queues", "name them: --queue urgent --queue default")
        return cls(weights, weighted, strict)

    @property
    def words(self) -> tuple[str, ...]:
        """What `parse` understands."""
        if self._weighted:
            return tuple(f"{name}={weight}" for name, weight in self._weights.items())
        return (STRICT, *self.names) if self.strict else self.names

    def pick(self, due: Mapping[str, Rows], slots: int) -> list[tuple[Any, ...]]:
        """The jobs whose turn it is, of what each queue has to offer."""
        if self._weighted:
            return self._by_weight(due, slots)
        rows = [row for name in due for row in due[name]]
        if not self.strict and len(due) > 1:
            rows.sort(key=lambda row: row[:2])
        return rows[:slots]

    def _by_weight(self, due: Mapping[str, Rows], slots: int) -> list[tuple[Any, ...]]:
        """Each turn gives every queue that has jobs its weight as credit; the richest pays for all of it."""
        left = {name: list(reversed(rows)) for name, rows in due.items() if rows}
        picked: list[tuple[Any, ...]] = []
        while left and len(picked) < slots:
            for name in left:
                self._credit[name] += self._weights[name]
            richest = max(left, key=lambda name: self._credit[name])
            self._credit[richest] -= sum(self._weights[name] for name in left)
            picked.append(left[richest].pop())
            if not left[richest]:
                del left[richest]
        return picked


def described(words: Sequence[str]) -> str:
    """The queues of a worker, for people."""
    if STRICT in words:
        return " > ".join(word for word in words if word != STRICT)
    return " ".join(words) or "all"


def serves(words: Sequence[str], queue: str) -> bool:
    return not words or any(word.partition("=")[0] == queue for word in words)


ANY = Turns({})
