"""Jobs page by page, and those that fit what somebody typed."""

from __future__ import annotations

import pytest

from queuectl.errors import InvalidInput
from queuectl.jobs import job_filter
from queuectl.jobs.job_filter import Filter
from queuectl.jobs.lifecycle import Exited
from queuectl.store import Store, listing
from tests.conftest import Clock
from tests.contract.conftest import Hire, enqueue


def found(store: Store, words: str) -> list[str]:
    return [job.id for job in store.views.listing.page(job_filter.parse(words)).jobs]


def test_pages_follow_each_other_without_gap_or_repetition(store: Store) -> None:
    ids = [enqueue(store, id=f"j{n}") for n in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = store.views.listing.page(Filter(), cursor, limit=3)
        seen += [job.id for job in page.jobs]
        enqueue(store)  # a page that somebody turns is not disturbed by what comes meanwhile
        cursor = page.next
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    for _ in range(3):
        enqueue(store)
    assert store.views.listing.page(Filter(), limit=3).next is None


def test_every_qualifier_finds_its_jobs_and_no_others(store: Store, hire: Hire, clock: Clock) -> None:
    enqueue(store, "send 50%_off", id="one", queue="mail", tags=["eu"], batch="b", key="k", max_retries=1, priority=1)
    worker = hire("w1")
    worker.work_off(Exited(7))
    clock.advance(7200)
    enqueue(store, "other", id="two")
    for words in (
        "state:dead", "queue:mail", "tag:eu", "batch:b", "key:k", "worker:w1", "exit:7", "send", "50%_off", "SEND",
        "one", "queue:mail state:dead tag:eu batch:b exit:7 send",
    ):  # fmt: skip
        assert found(store, words) == ["one"], words
    for words in ("queue:ma", "exit:8", "tag:e", "50x_off", "50%xoff", "state:dead other"):
        assert found(store, words) == [], words
    assert found(store, "since:1h") == ["two"]
    assert found(store, "") == ["two", "one"]


def test_what_runs_is_found(store: Store, hire: Hire) -> None:
    id = enqueue(store)
    enqueue(store)
    hire().claim_one()
    assert found(store, "state:processing") == [id]


@pytest.mark.parametrize("words", ["", "state:pending", "tag:t", "batch:b"])
def test_a_look_that_goes_far_back_finds_it_in_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(listing, "FIRST_LOOK", 2)
    monkeypatch.setattr(listing, "WIDEST_LOOK", 4)
    wanted = [enqueue(store, "needle", id=f"n{n}", tags=["t"], batch="b") for n in range(2)]
    for _ in range(20):
        enqueue(store, "hay", tags=["t"], batch="b")
    assert found(store, f"{words} needle") == wanted[::-1]
    assert store.views.listing.matches(job_filter.parse(f"{words} needle")).ids == wanted[::-1]
    assert store.views.listing.count(job_filter.parse(f"{words} needle")) == (2, True)
    # Without the time for it, the page says that it has not looked at everything, and from where to go on.
    page = store.views.listing.page(job_filter.parse(f"{words} needle"), budget=-1)
    assert page.jobs == []
    assert not page.seen_all
    seen: list[str] = []
    while page.next is not None:
        page = store.views.listing.page(job_filter.parse(f"{words} needle"), page.next, budget=-1)
        seen += [job.id for job in page.jobs]
    assert seen == wanted[::-1]
    assert store.views.listing.count(job_filter.parse(f"{words} needle"), budget=-1) == (0, False)


def test_all_that_match_can_be_walked_through_in_pieces(store: Store) -> None:
    ids = [enqueue(store, id=f"j{n}") for n in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        matches = store.views.listing.matches(Filter(), cursor, limit=3)
        seen += matches.ids
        cursor = matches.next
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_page_of_large_jobs_is_shorter_and_nothing_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LARGEST_PAGE", 1000)
    monkeypatch.setattr(listing, "READ_AT_ONCE", 2)
    ids = [enqueue(store, "x" * 400, id=f"j{n}") for n in range(10)]
    page = store.views.listing.page(Filter(), limit=500)
    assert len(page.jobs) == 4
    seen = [job.id for job in page.jobs]
    while page.next is not None:
        page = store.views.listing.page(Filter(), page.next, limit=500)
        seen += [job.id for job in page.jobs]
    assert seen == ids[::-1]


@pytest.mark.parametrize("cursor", [-1, 2**63, 10**30])
def test_a_cursor_that_makes_no_sense_is_refused(store: Store, cursor: int) -> None:
    with pytest.raises(InvalidInput):
        store.views.listing.page(Filter(), before=cursor)
