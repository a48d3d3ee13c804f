"""What can be asked of jobs, but for what takes its time: see `follow`."""

from __future__ import annotations

import hashlib
from typing import Any

from queuectl.client.http_client import ROOT
from queuectl.errors import InvalidInput, NotFound
from queuectl.jobs import job_filter, job_spec
from queuectl.jobs.job_filter import Filter
from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, enqueue_fields
from queuectl.web import cursors
from queuectl.web.api.operation import Call, Reply
from queuectl.web.api.schemas import MOST_JOBS
from queuectl.web.remote_cwd import from_afar

FILTERS = ("state", "queue", "tag", "batch")


# -- making them -----------------------------------------------------------------------------------------


def create_jobs(store: Store, call: Call) -> Reply:
    """Store one job, or all of several or none."""
    wanted = call.body
    if isinstance(wanted, dict) and "jobs" in wanted:
        if len(wanted) > 1:
            raise InvalidInput('beside "jobs" there is another field', 'send {"jobs": […]} alone')
        wanted = wanted["jobs"]
        if not isinstance(wanted, list):
            raise InvalidInput('"jobs" must be a list', 'for example {"jobs": [{"command": "true"}]}')
    many = isinstance(wanted, list)
    if many and not 1 <= len(wanted) <= MOST_JOBS:
        raise InvalidInput(f"there are {len(wanted):,} jobs", f"send 1 to {MOST_JOBS:,} of them")

    def read(fields: Any) -> NewJob:
        return job_spec.from_fields(from_afar(store, fields))

    key = call.query.get("Idempotency-Key")
    submission = None if key is None else (key, hashlib.sha256(call.raw).hexdigest())
    stored = store.views.reader()
    enqueue_fields.enqueue(store, wanted if many else [wanted], many, read, submission, stored)
    if many:
        return Reply({"jobs": [job.as_json() for job in stored.jobs()]}, 201)
    job = stored.job()
    return Reply(job.as_json(), 201, {"Location": f"{ROOT}/jobs/{job.id}"})


# -- looking at them -------------------------------------------------------------------------------------


def list_jobs(store: Store, call: Call) -> dict[str, Any]:
    """List jobs, the newest first. There may be more as long as `next` is not null, even if a page is not full."""
    page = store.views.listing.page(_filter(call), cursor_in(call), call.query["limit"])
    return {"jobs": [job.as_json() for job in page.jobs], "next": cursor(page.next)}


def _filter(call: Call) -> Filter:
    wanted = job_filter.parse(call.query.get("q", ""))
    for name in FILTERS:
        if (value := call.query.get(name)) is not None:
            if getattr(wanted, name) not in (None, value):
                raise InvalidInput(f'"{name}" and "{name}:" in "q" differ', "keep one of them")
            wanted = wanted.but(**{name: job_spec.text(name, value)})
    return wanted


def cursor(place: int | None) -> str | None:
    return None if place is None else cursors.sealed(place)


def cursor_in(call: Call) -> int | None:
    text = call.query.get("cursor")
    return None if text is None else cursors.unsealed(text)


def get_job(store: Store, call: Call) -> dict[str, Any]:
    """Get a job."""
    return store.views.job(call.path["id"]).as_json()


def get_history(store: Store, call: Call) -> dict[str, Any]:
    """Tell what happened to a job, step by step."""
    return {"events": [event.as_json() for event in store.views.history(call.path["id"])]}


def explain_job(store: Store, call: Call) -> dict[str, Any]:
    """Say why a job is not running, and what would make it run."""
    job = store.views.job(call.path["id"])
    return {
        "id": job.id,
        "state": job.state,
        "reasons": store.views.explain(job, store.views.workers(), store.views.clock()),
    }


# -- steering them ---------------------------------------------------------------------------------------


def cancel_job(store: Store, call: Call) -> dict[str, Any]:
    """Cancel a job. A running one is ended by its worker: its state is `processing` until that is done."""
    return _steer(store, call, store.cancel)


def retry_job(store: Store, call: Call) -> dict[str, Any]:
    """Run a dead job again, with no attempts spent."""
    return _steer(store, call, store.retry)


def _steer(store: Store, call: Call, do: Any) -> dict[str, Any]:
    changed = store.views.reader()
    do([store.views.resolve(call.path["id"])], before_commit=changed)
    return changed.job().as_json()


def delete_job(store: Store, call: Call) -> Reply:
    """Delete a job that has finished, with its history and log."""
    store.delete([whole_id(store, call.path["id"])])
    return Reply(None, 204)


def whole_id(store: Store, text: str) -> str:
    """The id itself, for what cannot be undone: a slip must not mean another job."""
    if store.views.resolve(text) != text:
        raise NotFound(f'there is no job "{text}"', "to delete one, give its whole id")
    return text
