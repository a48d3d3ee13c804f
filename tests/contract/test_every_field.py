"""No way of making a job again drops a field. A new field without support fails here."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from queuectl.client import queue
from queuectl.jobs import clone, job_spec
from queuectl.schedules import schedule
from queuectl.store import Store, copy
from queuectl.store.sqlite import SqliteEngine
from queuectl.web.auth import Role, User
from queuectl.web.pages import new_job
from queuectl.web.rendering import Ask, Done, Fields, View, draw
from tests.conftest import Clock
from tests.contract.conftest import enqueue
from tests.every_field import EVERY, PARENTS, STORED, given, wanted

ADMIN = User("admin", Role.ADMIN)


@pytest.fixture
def every(store: Store) -> Store:
    """A queue that holds a job with every field."""
    store.hooks.add("pager", ["dead"], command="true")
    for parent in PARENTS:
        enqueue(store, id=parent)
    store.enqueue([job_spec.from_fields(EVERY)])
    return store


class Form(HTMLParser):
    """What a browser would send if it sent the form of a page as it is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: Fields = {}
        self._select = self._area = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "input":
            self.fields[values["name"]] = [values["value"]]
        elif tag == "select":
            self._select = values["name"]
        elif tag == "textarea":
            self._area = values["name"]
            self.fields[self._area] = [""]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.fields[self._area] = [self.fields[self._area][0].removeprefix("\n")]
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area][0] += data
        elif self._select and data.strip():
            self.fields.setdefault(self._select, [data.strip()])


def test_the_sample_has_every_field_and_no_default() -> None:
    assert EVERY.keys() == job_spec.FIELDS == queue.JobFields.__annotations__.keys() | {"command"}
    job, plain = job_spec.from_fields(EVERY), job_spec.NewJob("true")
    assert all(getattr(job, name) != getattr(plain, name) for name in job_spec.FIELDS)


def test_every_field_is_stored(every: Store) -> None:
    assert given(every.views.job("every").as_json()) == STORED
    with every.engine.read() as tx:
        assert tx.rows("SELECT name, max_fails FROM batches") == [("b.1", EVERY["max_fails"])]


def test_a_clone_has_every_field_but_the_id(every: Store, clock: Clock) -> None:
    ask = Ask(ADMIN, query={"clone": "every"})
    form = Form(draw(new_job.show(every, ask), ask, "", live=False)).fields
    assert form.keys() >= job_spec.FIELDS  # also those that a clone leaves out can be typed
    every.cancel(["every"])  # its unique key is free again
    made = new_job.create(every, ask, form)
    assert isinstance(made, Done), made
    id = (made.to or "").removeprefix("/jobs/")
    assert id != "every"
    assert given(every.views.job(id).as_json(), ("id",)) == wanted("id")


def test_every_field_can_be_typed_into_the_form(every: Store, clock: Clock) -> None:
    typed = new_job.as_texts(
        {**EVERY, "id": "typed", "unique_key": "another", "depends_on": [{"id": "p1", "condition": "any"}]}
    )
    assert typed.keys() == job_spec.FIELDS
    made = new_job.create(every, Ask(ADMIN), {name: [text] for name, text in typed.items()})
    assert not isinstance(made, View), made.shows["error"]
    changed = ("id", "unique_key", "depends_on")
    assert given(every.views.job("typed").as_json(), changed) == wanted(*changed)


def test_the_fields_of_a_job_make_the_same_job(every: Store, clock: Clock) -> None:
    fields = clone.fields_of(every.views.job("every"), every.config(), clock.now)
    assert fields.keys() == STORED.keys() - {"id"}
    every.cancel(["every"])
    [id] = every.enqueue([job_spec.from_fields(fields)])
    assert given(every.views.job(id).as_json(), ("id",)) == wanted("id")


def test_a_copied_job_has_every_field(every: Store, tmp_path: Path, clock: Clock) -> None:
    target = Store(SqliteEngine(str(tmp_path / "copy" / "queue.db"), clock=clock))
    copy.copy(every, target)
    assert given(target.views.job("every").as_json()) == STORED
    target.close()


def test_jobs_of_a_schedule_have_every_field_but_those_that_are_refused(every: Store, clock: Clock) -> None:
    refused = schedule.NOT_FOR_A_SCHEDULE
    every.cancel(["every"])
    fields = {name: value for name, value in EVERY.items() if name not in refused}
    every.schedules.add("often", None, 1, "UTC", fields)
    clock.advance(1)
    every.schedules.fire()
    [(one, last)] = every.schedules.all()
    assert last is not None
    assert last.job is not None, last
    fired = every.views.job(last.job).as_json()
    assert fired["env"].items() > EVERY["env"].items()  # and which schedule it is, and when
    assert given(fired, ("env", *refused)) == wanted("env", *refused)
    every.cancel([last.job])
    triggered = every.schedules.trigger(one.name).as_json()
    assert given(triggered, ("env", *refused)) == wanted("env", *refused)
