"""Jobs as fields, from Python or over HTTP: one of them, or several of which all are stored or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queuectl.errors import Conflict, InvalidInput
from queuectl.jobs import job_spec
from queuectl.jobs.job_spec import NewJob
from queuectl.store.engine import Transaction
from queuectl.store.store import Store


def enqueue(
    store: Store,
    wanted: Sequence[Mapping[str, Any]],
    several: bool,
    read: Callable[[Mapping[str, Any]], NewJob] = job_spec.from_fields,
    submission: tuple[str, str] | None = None,
    before_commit: Callable[[Transaction, Sequence[str]], object] | None = None,
) -> list[str]:
    """Their ids. An error says which of several it is about."""
    jobs = []
    for index, fields in enumerate(wanted):
        try:
            jobs.append(read(fields))
        except InvalidInput as error:
            raise (error.of_job(index) if several else error) from None
    try:
        return store.enqueue(jobs, submission=submission, before_commit=before_commit)
    except Conflict as error:
        raise (error.of_job(error.index) if several and error.index is not None else error) from None
