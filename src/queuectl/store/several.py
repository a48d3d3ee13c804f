"""Jobs as fields, from Python or over HTTP: one of them, or several of which all are stored or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queuectl import newjob
from queuectl.errors import Conflict, InvalidInput
from queuectl.newjob import NewJob
from queuectl.store.store import Store


def enqueue(
    store: Store,
    wanted: Sequence[Mapping[str, Any]],
    several: bool,
    read: Callable[[Mapping[str, Any]], NewJob] = newjob.from_fields,
    submission: tuple[str, str] | None = None,
) -> list[str]:
    """Their ids. An error says which of several it is about."""
    jobs = []
    for index, fields in enumerate(wanted):
        try:
            jobs.append(read(fields))
        except InvalidInput as error:
            raise (error.of_job(index) if several else error) from None
    try:
        return store.enqueue(jobs, submission=submission)
    except Conflict as error:
        raise (error.of_job(error.index) if several and error.index is not None else error) from None
