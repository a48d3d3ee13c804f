"""Jobs and what they wait for, as a drawing: parents left of a job, children right of it. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from queuectl.jobs import dependency_rules

WIDTH, HEIGHT = 168, 44  # of a node
GAP, BETWEEN = 76, 14  # between columns, and between the nodes of one
MARGIN = 8
LONGEST_ID = 18
SWEEPS = 4  # over the columns, to put neighbours beside each other

WORDS = {"fail": "if dead", "any": "any end"}


class Edge(NamedTuple):
    parent: str
    child: str
    condition: str = "ok"


class Place(NamedTuple):
    x: int
    y: int


def columns(centre: str, nodes: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """The nodes from left to right. Every edge goes to the right; those that nothing connects stand nowhere."""
    forward, backward = defaultdict(list), defaultdict(list)
    for edge in edges:
        forward[edge.parent].append(edge.child)
        backward[edge.child].append(edge.parent)
    depth = {node: -far for node, far in _farthest(centre, backward).items()} | _farthest(centre, forward)
    found: dict[int, list[str]] = defaultdict(list)
    for node in nodes:
        if node in depth:
            found[depth[node]].append(node)
    ordered = [found[key] for key in sorted(found)]
    for sweep in range(SWEEPS):
        to_the_right = sweep % 2 == 0
        beside = backward if to_the_right else forward
        steps = ordered if to_the_right else ordered[::-1]
        for before, column in itertools.pairwise(steps):
            rank = {node: index for index, node in enumerate(before)}
            where = {node: _middle([rank[other] for other in beside[node] if other in rank]) for node in column}
            old = {node: float(index) for index, node in enumerate(column)}
            column.sort(key=lambda node: (old[node] if where[node] is None else where[node], old[node]))
    return ordered


def _farthest(start: str, ways: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How far each node is by the longest way: then whatever lies between two others is drawn between them."""
    order: list[str] = []
    seen = {start}
    stack = [(start, iter(ways.get(start, ())))]
    while stack:
        node, rest = stack[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(ways.get(following, ()))))
    depth = dict.fromkeys(seen, 0)
    for node in reversed(order):
        for other in ways.get(node, ()):
            depth[other] = max(depth[other], depth[node] + 1)
    return depth


def _middle(ranks: Sequence[int]) -> float | None:
    return sum(ranks) / len(ranks) if ranks else None


def places(ordered: Sequence[Sequence[str]]) -> tuple[dict[str, Place], int, int]:
    """Where the upper left corner of each node is, and how large the drawing."""
    tallest = max(map(len, ordered), default=0)
    height = tallest * (HEIGHT + BETWEEN) - BETWEEN + 2 * MARGIN
    found = {}
    for number, column in enumerate(ordered):
        top = (height - len(column) * (HEIGHT + BETWEEN) + BETWEEN) // 2
        for index, node in enumerate(column):
            found[node] = Place(MARGIN + number * (WIDTH + GAP), top + index * (HEIGHT + BETWEEN))
    return found, len(ordered) * (WIDTH + GAP) - GAP + 2 * MARGIN, height


def svg(centre: str, states: Mapping[str, str], edges: Sequence[Edge], title: str) -> Markup:
    """The drawing. Its links are for the mouse; whoever uses the keyboard is given a list."""
    where, width, height = places(columns(centre, list(states), edges))
    drawn = [edge for edge in edges if edge.parent in where and edge.child in where]
    return Markup(
        '<svg class="dag" role="group" aria-label="{title}" width="{width}" height="{height}" '
        'viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8Z"/></marker></defs>{edges}{nodes}</svg>'
    ).format(
        title=title,
        width=width,
        height=height,
        edges=Markup("").join(_drawn_edge(edge, where) for edge in drawn),
        nodes=Markup("").join(_drawn_node(id, states[id], place, id == centre) for id, place in where.items()),
    )


def _drawn_edge(edge: Edge, where: Mapping[str, Place]) -> Markup:
    start, end = where[edge.parent], where[edge.child]
    x1, y1, x2, y2 = start.x + WIDTH, start.y + HEIGHT // 2, end.x - 1, end.y + HEIGHT // 2
    middle = (x1 + x2) // 2
    line = Markup('<path class="edge edge-{}" d="M{} {}C{} {} {} {} {} {}" marker-end="url(#arrow)"/>').format(
        edge.condition, x1, y1, middle, y1, middle, y2, x2, y2
    )
    if edge.condition == "ok":
        return line
    return line + Markup('<text class="when" x="{}" y="{}">{}</text>').format(
        middle, (y1 + y2) // 2 - 5, WORDS.get(edge.condition, edge.condition)
    )


def _drawn_node(id: str, state: str, place: Place, here: bool) -> Markup:
    short = id if len(id) <= LONGEST_ID else id[: LONGEST_ID - 1] + "…"
    node = Markup(
        '<g class="node node-{state}{here}"><title>{id}: {state}</title>'
        '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        '<text class="name" x="{text}" y="{first}">{short}</text>'
        '<text class="word" x="{text}" y="{second}">{state}</text></g>'
    ).format(
        state=state,
        here=" here" if here else "",
        id=id,
        x=place.x,
        y=place.y,
        width=WIDTH,
        height=HEIGHT,
        text=place.x + 12,
        first=place.y + 19,
        second=place.y + 35,
        short=short,
    )
    leads_nowhere = here or state == dependency_rules.DELETED
    return node if leads_nowhere else Markup('<a href="/jobs/{}" tabindex="-1">{}</a>').format(id, node)
