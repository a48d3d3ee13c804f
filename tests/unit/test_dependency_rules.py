"""Circles among jobs that wait for each other, found in any graph."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.jobs.dependency_rules import find_cycle, outcome_of

NODES = st.sampled_from("abcdefgh")


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({}, []),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"]),
        ({"x": ["a"], "a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"d": ["b", "c"], "b": ["a"], "c": ["a"]}, []),
    ],
)
def test_a_circle_is_shown_from_one_of_its_jobs_back_to_it(graph: dict[str, list[str]], cycle: list[str]) -> None:
    assert find_cycle(graph) == cycle


@given(st.dictionaries(NODES, st.lists(NODES)))
def test_a_circle_is_found_where_there_is_one_and_is_one(graph: dict[str, list[str]]) -> None:
    cycle = find_cycle(graph)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError:
        assert cycle[0] == cycle[-1]
        assert all(parent in graph[job] for job, parent in pairwise(cycle))
    else:
        assert cycle == []


def test_a_long_chain_is_no_trouble() -> None:
    assert find_cycle({str(n): [str(n + 1)] for n in range(100_000)}) == []


@pytest.mark.parametrize(
    ("state", "ok", "fail", "any"),
    [
        ("completed", "met", "broken", "met"),
        ("dead", "broken", "met", "met"),
        ("cancelled", "broken", "broken", "met"),
        *((state, "open", "open", "open") for state in ("pending", "processing", "failed", "blocked")),
    ],
)
def test_what_the_end_of_a_parent_means(state: str, ok: str, fail: str, any: str) -> None:
    assert [outcome_of(condition, state) for condition in ("ok", "fail", "any")] == [ok, fail, any]
