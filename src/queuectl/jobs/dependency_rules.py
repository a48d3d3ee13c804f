"""Which jobs wait for which. Pure: no I/O."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONDITIONS = ("ok", "fail", "any")
RELEASED = "all it waited for has come"
BROKEN = "its dependency"
DELETED = "deleted"  # said of a parent in place of its state


def outcome_of(condition: str, state: str) -> str:
    """What the state of its parent makes of a dependency: `open`, `met` or `broken`."""
    if state == "completed":
        return "broken" if condition == "fail" else "met"
    if state == "dead":
        return "broken" if condition == "ok" else "met"
    if state == "cancelled":
        return "met" if condition == "any" else "broken"
    return "open"


def why_broken(parent: str, condition: str, state: str) -> str:
    """Why a job can never run that waits for this one."""
    return f'{BROKEN} "{parent}" is {state}' + (", and should have failed" if condition == "fail" else "")


def why_not_revived(parent: str) -> str:
    """Why a cancelled job stays so, though one of those it waited for runs again."""
    return f'not revived: {BROKEN} "{parent}" was deleted'


def children_first(seqs: Sequence[int], children: Mapping[int, Sequence[int]]) -> list[int]:
    """These, and all that can be reached from them, in an order in which every job comes after its children."""
    order: list[int] = []
    seen: set[int] = set()
    for start in seqs:
        way = [(start, iter(children.get(start, ())))] if start not in seen else []
        seen.add(start)
        while way:
            job, left = way[-1]
            child = next((child for child in left if child not in seen), None)
            if child is None:
                order.append(job)
                way.pop()
            else:
                seen.add(child)
                way.append((child, iter(children.get(child, ()))))
    return order


def find_cycle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """A way from a job over those it waits for back to itself, with it at both ends; empty if there is none."""
    done: set[str] = set()
    for start in parents:
        way: list[str] = []
        on_the_way: set[str] = set()
        left = [iter((start,))]
        while left:
            job = next(left[-1], None)
            if job is None:
                left.pop()
                if way:
                    done.add(way[-1])
                    on_the_way.discard(way.pop())
            elif job in on_the_way:
                return [*way[way.index(job) :], job]
            elif job not in done:
                way.append(job)
                on_the_way.add(job)
                left.append(iter(parents.get(job, ())))
    return []
