from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from queuectl.web.dependency_graph import HEIGHT, WIDTH, Edge, columns, places, svg


def test_parents_stand_left_and_children_right() -> None:
    edges = [Edge("a", "me"), Edge("b", "me"), Edge("a", "b"), Edge("me", "c"), Edge("c", "d"), Edge("me", "d")]
    assert columns("me", ["me", "a", "b", "c", "d"], edges) == [["a"], ["b"], ["me"], ["c"], ["d"]]


def test_the_longest_way_counts_whichever_comes_first() -> None:
    edges = [Edge("me", "c"), Edge("c", "d"), Edge("me", "a"), Edge("a", "b"), Edge("b", "d")]
    assert columns("me", ["me", "a", "b", "c", "d"], edges)[-2:] == [["b"], ["d"]]


def test_neighbours_stand_beside_each_other() -> None:
    edges = [Edge("p1", "q2"), Edge("p2", "q1"), Edge("q1", "me"), Edge("q2", "me")]
    left, middle, _ = columns("me", ["me", "q1", "q2", "p1", "p2"], edges)
    assert [left.index("p1"), left.index("p2")] == [middle.index("q2"), middle.index("q1")]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[str], list[Edge]]:
    """Jobs with numbers: each waits only for smaller ones."""
    size = draw(st.integers(1, 12))
    pairs = [(f"j{a}", f"j{b}") for b in range(size) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return f"j{draw(st.integers(0, size - 1))}", [f"j{n}" for n in range(size)], [Edge(a, b) for a, b in chosen]


@given(graphs())
def test_every_edge_on_the_way_goes_to_the_right_and_no_two_nodes_overlap(
    graph: tuple[str, list[str], list[Edge]],
) -> None:
    centre, nodes, edges = graph
    ordered = columns(centre, nodes, edges)
    column_of = {node: number for number, column in enumerate(ordered) for node in column}
    assert centre in column_of
    before, after = reach(centre, edges, up=True), reach(centre, edges, up=False)
    assert set(column_of) == before | after
    for edge in edges:
        if {edge.parent, edge.child} <= before or {edge.parent, edge.child} <= after:
            assert column_of[edge.parent] < column_of[edge.child]
    where, width, height = places(ordered)
    boxes = list(where.values())
    assert all(0 <= x <= width - WIDTH and 0 <= y <= height - HEIGHT for x, y in boxes)
    assert all(abs(a.x - b.x) >= WIDTH or abs(a.y - b.y) >= HEIGHT for n, a in enumerate(boxes) for b in boxes[:n])


def reach(start: str, edges: list[Edge], up: bool) -> set[str]:
    found = {start}
    while more := {a if up else b for a, b, _ in edges if (b if up else a) in found} - found:
        found |= more
    return found


def test_the_drawing_says_all_of_it_and_nothing_acts() -> None:
    edges = [Edge("a", "me", "fail"), Edge("me", "b", "any"), Edge("me", "gone")]
    drawn = str(svg("me", {"me": "dead", "a": "dead", "b": "<b>"}, edges, 'a "title" <x>'))
    assert re.findall(r'href="([^"]*)"', drawn) == ["/jobs/a", "/jobs/b"]
    assert "if dead" in drawn
    assert "any end" in drawn
    assert "gone" not in drawn
    assert "<b>" not in drawn
    assert 'aria-label="a &#34;title&#34; &lt;x&gt;"' in drawn
    assert "style=" not in drawn


def test_a_deleted_parent_leads_nowhere() -> None:
    drawing = svg(
        "this", {"this": "cancelled", "a": "deleted", "b": "dead"}, [Edge("a", "this"), Edge("b", "this")], ""
    )
    assert "a: deleted" in drawing
    assert '"/jobs/b"' in drawing
    assert '"/jobs/a"' not in drawing
