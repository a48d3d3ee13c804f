"""One job: what it is, why it stands where it does, what it printed."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from queuectl.jobs import clone, dependency_rules, job_spec
from queuectl.jobs.full_log import before_this_run
from queuectl.jobs.lifecycle import Cancelled, Exited, State, outcome_label, signal_label, signal_name
from queuectl.jobs.model import Event, Job, Link
from queuectl.store import Store
from queuectl.store.views import Views
from queuectl.web import dependency_graph, log_pages
from queuectl.web.auth import Role
from queuectl.web.rendering import Ask, Done, Fields, View, draw
from queuectl.web.routing import Door, desk, user_of

STEPS = 3  # from the job, in each direction, that its graph reaches
MOST_NODES = 60
MOST_LINKS = 1000  # of one job that are read
MOST_SHOWN = 50  # steps of its life, and runs


def show(store: Store, ask: Ask) -> View:
    views = store.views
    job = views.job(ask.path["id"])
    history, workers, now = views.history(job.id), views.workers(), views.clock()
    lived = steps(history, None if job.finished else now)
    runs = runs_of(job, history)
    most = len(history) if "all" in ask.query else MOST_SHOWN
    return View(
        "job.html",
        {
            "job": job,
            "why": store.views.explain(job, workers, now),
            "strip": strip(lived[-most:]),
            "steps": lived[-most:],
            "earlier_steps": max(0, len(lived) - most),
            "runs": runs[:most],
            "more_runs": max(0, len(runs) - most),
            "hosts": {worker.id: worker.host for worker in workers},
            "signal": None if job.signal is None else signal_name(job.signal),
            "conditions": dependency_graph.WORDS,
            "result": None if job.result is None else json.dumps(job.result, ensure_ascii=False, indent=2),
            "graph": graph_of(views, job),
            "cli": clone.command_line(job, store.config(), now),
            "log_size": 0 if job.log_host else log_pages.size_of(job.log_path),
            # A live drawing has no use for it, and need not read it.
            "read_log": functools.partial(_log, job, history, ask.query.get("line", ""), ask.query.get("at", "")),
        },
        to=f"/jobs/{job.id}" if ask.path["id"] != job.id else "",
    )


# -- its life --------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What happened, and how long it then stayed like that."""

    event: Event
    lasted_ms: int | None
    goes_on: bool


class Run(NamedTuple):
    number: int
    started_at: int
    ended: Event | None
    worker_id: str | None

    @property
    def duration_ms(self) -> int | None:
        if self.ended is None:
            return None
        return self.ended.at - self.started_at if self.ended.duration_ms is None else self.ended.duration_ms

    @property
    def end(self) -> str:
        """`exit code 1`, `SIGKILL`, or one of the other ways for a run to end."""
        if self.ended is None:
            return "running"
        end = self.ended
        if end.outcome == Cancelled.kind and end.signal:  # its state says that it was cancelled
            return signal_label(end.signal)
        label = outcome_label(end.outcome, end.exit_code, end.signal)
        return f"exit code {label}" if end.outcome == Exited.kind else label


def steps(history: Sequence[Event], now: int | None) -> list[Step]:
    """`now`: None if it has come to its end, which lasts for ever."""
    ends = [*(event.at for event in history[1:]), now]
    return [
        Step(event, None if end is None else max(0, end - event.at), number == len(history) and now is not None)
        for number, (event, end) in enumerate(zip(history, ends, strict=True), 1)
    ]


def strip(lived: Sequence[Step]) -> list[tuple[int, int, str]]:
    """Its life as a strip of length 1000: where each state begins, how long it is, and the state. The shortest can be
    seen, too."""
    lasted = [(step.lasted_ms, step.event.state) for step in lived if step.lasted_ms is not None]
    whole = sum(ms for ms, _ in lasted) or 1
    sizes = [max(ms / whole, 0.004) for ms, _ in lasted]
    length = sum(sizes) or 1  # a job of which no step is known has no length
    ends = [round(1000 * end / length) for end in itertools.accumulate(sizes, initial=0)]
    return [(start, end - start, state) for start, end, (_, state) in zip(ends, ends[1:], lasted, strict=False)]


def runs_of(job: Job, history: Sequence[Event]) -> list[Run]:
    """The newest first."""
    found: list[Run] = []
    for event in history:
        if event.kind == "started":
            found.append(Run(event.run, event.at, None, event.worker_id))
        elif found and found[-1].ended is None and event.run == found[-1].number and event.state != State.PROCESSING:
            found[-1] = found[-1]._replace(ended=event)
    return found[::-1]


# -- what it waits for, and what waits for it ------------------------------------------------------------


class Graph(NamedTuple):
    drawing: Markup
    parents: list[Link]
    children: list[Link]
    more: int  # jobs that were seen and not drawn
    at_least: bool  # there may be even more


def graph_of(views: Views, job: Job) -> Graph | None:
    parents, children = views.parents(job.id, MOST_LINKS), views.children(job.id, MOST_LINKS)
    if not parents and not children:
        return None
    states = {job.id: job.state}
    edges: set[dependency_graph.Edge] = set()
    left_out: set[str] = set()
    cut = MOST_LINKS in (len(parents), len(children))

    def walk(ask: Callable[[str, int], list[Link]], first: list[Link], up: bool, room: int) -> None:
        nonlocal cut
        here = [(job.id, first)]
        for _ in range(STEPS):
            found: list[str] = []
            for id, links in here:
                for link in links:
                    if link.id not in states and len(states) >= room:
                        left_out.add(link.id)
                        continue
                    if link.id not in states:
                        states[link.id] = link.state
                        if link.state != dependency_rules.DELETED:  # another job may have its id by now
                            found.append(link.id)
                    edges.add(dependency_graph.Edge(*((link.id, id) if up else (id, link.id)), link.condition))
            here = [(id, ask(id, MOST_NODES + 1)) for id in found]
            cut = cut or any(len(links) > MOST_NODES for _, links in here)

    walk(views.parents, parents, up=True, room=MOST_NODES // 2)
    walk(views.children, children, up=False, room=MOST_NODES)
    title = f"Job {job.id}, the {len(parents)} jobs it waits for and the {len(children)} that wait for it"
    drawing = dependency_graph.svg(job.id, states, sorted(edges), title)
    return Graph(drawing, parents[:MOST_NODES], children[:MOST_NODES], len(left_out), cut)


# -- its log ---------------------------------------------------------------------------------------------


def _log(job: Job, history: Sequence[Event], line: str = "", at: str = "") -> log_pages.Part:
    if job.log_host:
        return log_pages.of_tails(job)
    if (number := job_spec.number_in(line, 10**9)) is not None:
        return log_pages.from_line(job.log_path, number)
    if at:
        return log_pages.from_place(job.log_path, log_pages.Cursor.read(at))
    return log_pages.at_end(job.log_path, before_this_run(history))


def more(request: Request) -> Response:
    """What the log has got since a page was drawn, and where to go on then. Nothing, if nothing came."""
    with desk(request).stores.lend() as store:
        job = store.views.job(request.path_params["id"])
        cursor = log_pages.Cursor.read(request.query_params.get("at", ""))
        part = None if job.log_host else log_pages.after(job.log_path, cursor)
        anew = part is None
        if part is None:
            part = _log(job, store.views.history(job.id))
    headers = {"Log-At": str(part.cursor), "Log-Anew": "1" if anew else ""}
    if not part.lines and not anew:
        return Response(status_code=204, headers=headers)
    text = draw(View("job_lines.html", {"part": part}), Ask(user_of(request)), "", live=True)
    return HTMLResponse(text, headers=headers)


# -- what its buttons do ---------------------------------------------------------------------------------


def cancel(store: Store, ask: Ask, fields: Fields) -> Done:
    id = store.views.resolve(ask.path["id"])
    state = store.cancel([id])[id]
    ending = state != State.CANCELLED
    return _done(f"Job {id} is being ended by its worker." if ending else f"Job {id} cancelled.", id)


def retry(store: Store, ask: Ask, fields: Fields) -> Done:
    id = store.views.resolve(ask.path["id"])
    store.retry([id])
    return _done(f"Job {id} will be tried again.", id)


def delete(store: Store, ask: Ask, fields: Fields) -> Done:
    id = store.views.resolve(ask.path["id"])
    store.delete([id])
    return _done(f"Job {id} deleted.", None)


def _done(said: str, id: str | None) -> Done:
    return Done(said, f"/jobs/{id}" if id else "/jobs")


DOORS = (Door("/jobs/{id}/log/more", more, Role.VIEWER),)
