"""What takes its time: a job's log, live if it runs, and waiting for its end. Nobody who waits holds a connection to
the queue, or a thread, for longer than a look takes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from queuectl.errors import Conflict, NotFound, QueuectlError, StoreUnavailable
from queuectl.jobs import log_files
from queuectl.jobs.full_log import before_this_run, transcript
from queuectl.jobs.model import Job
from queuectl.store import Store
from queuectl.system import private_files
from queuectl.web.api.operation import Call
from queuectl.web.http_errors import TooBusy, as_problem
from queuectl.web.routing import desk
from queuectl.web.store_pool import Stores
from queuectl.web.streams import LimitedStream, client_of

PLAIN = "text/plain; charset=utf-8"
PIECE = 64 * 1024
LARGEST = 8 << 20  # a log beyond this is shown as it lies there, piece by piece
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks; they grow while nothing happens


# -- the log ---------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """What a log begins with, and where in its file it goes on."""

    job: Job
    shown: bytes
    position: int
    size: int


async def get_log(request: Request, call: Call) -> Response:
    """Read what a job printed, in all its runs; live, or a part of the file itself."""
    ask = call.query
    follow = bool(ask["follow"]) and request.method == "GET"
    stores = desk(request).stores
    start = await run_in_threadpool(_start, stores, call.path["id"], ask.get("tail"), bool(ask["raw"]), follow)
    headers = {"Accept-Ranges": "bytes" if ask["raw"] else "none"}
    if ask["download"]:
        headers["Content-Disposition"] = f'attachment; filename="job_{start.job.id}.log"'
    if follow:
        return LimitedStream(desk(request).streams, client_of(request), _live(request, start), PLAIN, headers)
    if start.job.log_host:
        return _elsewhere(start.job)
    if "tail" in ask or start.shown or not start.size:
        return Response(start.shown, headers=headers, media_type=PLAIN)
    span = _span(request.headers.get("range"), start.size) if ask["raw"] else None
    if span is not None and not span:
        headers["Content-Range"] = f"bytes */{start.size}"
        refused = _Unsatisfiable(f"the log has {start.size} bytes", "ask for bytes that are there")
        return JSONResponse(as_problem(refused), 416, headers, media_type="application/problem+json")
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{start.size}"
    part = range(start.size) if span is None else span
    headers["Content-Length"] = str(len(part))
    return StreamingResponse(_pieces(start.job.log_path, part), 200 if span is None else 206, headers, PLAIN)


class _Unsatisfiable(QueuectlError):
    http_status = 416


def _start(stores: Stores, id: str, tail: int | None, raw: bool, follow: bool) -> Start:
    with stores.lend() as store:
        job = store.views.job(id)
        if job.log_host:
            return Start(job, b"", 0, 0)
        try:
            return _start_here(store, job, tail, raw, follow)
        except OSError as error:
            raise Conflict(f"its log cannot be read: {error.strerror}", f"look at {job.log_path}") from None


def _start_here(store: Store, job: Job, tail: int | None, raw: bool, follow: bool) -> Start:
    size = _size(job.log_path)
    if tail is not None:
        shown, size = log_files.read(job.log_path, tail, LARGEST)
        if not size and not raw:
            shown = log_files.last_lines(transcript(store.views.history(job.id), b""), tail)
        return Start(job, shown, size, size)
    if raw or size > LARGEST:
        return Start(job, b"", 0, size)
    history = store.views.history(job.id)
    printed, size = log_files.read(job.log_path)
    return Start(job, transcript(before_this_run(history) if follow else history, printed), size, size)


def _size(path: str) -> int:
    try:
        log = private_files.open_file(path, os.O_RDONLY)
    except FileNotFoundError:  # most runs print nothing
        return 0
    try:
        return os.fstat(log).st_size
    finally:
        os.close(log)


def _span(header: str | None, size: int) -> range | None:
    """The bytes that a Range asks for; empty: there are none such. None: it asks for nothing that we understand."""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").strip())
    if match is None or match.groups() == ("", "") or (match[1] and match[2] and int(match[1]) > int(match[2])):
        return None
    if not match[1]:
        return range(max(0, size - int(match[2])), size)
    return range(int(match[1]), min(size, int(match[2]) + 1) if match[2] else size)


def _elsewhere(job: Job) -> Response:
    """With the end of what its last run printed, which the queue itself keeps."""
    error = Conflict(f"job {job.id} ran on {job.log_host}, which has its log", f"it is {job.log_path} there")
    more = {"log_host": job.log_host, "log_path": job.log_path, "stdout": job.stdout, "stderr": job.stderr}
    return JSONResponse({**as_problem(error), **more}, 409, media_type="application/problem+json")


def _read(path: str, position: int, most: int = PIECE) -> tuple[bytes, int]:
    """A piece of the file, and where it ends."""
    try:
        log = private_files.open_file(path, os.O_RDONLY)
    except OSError:
        return b"", position
    try:
        position = min(position, os.fstat(log).st_size)  # the middle was cut while we watched
        piece = os.pread(log, most, position)
        return piece, position + len(piece)
    finally:
        os.close(log)


async def _pieces(path: str, part: range) -> AsyncIterator[bytes]:
    at = part.start
    while at < part.stop:
        piece, at = await run_in_threadpool(_read, path, at, min(PIECE, part.stop - at))
        if not piece:
            return
        yield piece


async def _live(request: Request, start: Start) -> AsyncIterator[bytes]:
    """What was printed, and what is being printed, until the job has finished, the reader goes or the server ends."""
    job, position, pause, live = start.job, start.position, FIRST_PAUSE, desk(request).live
    if start.shown:
        yield start.shown
    while not live.closed:
        if not job.log_host:
            piece, position = await run_in_threadpool(_read, job.log_path, position)
            if piece:
                pause = FIRST_PAUSE
                yield piece
                continue
        if job.finished:  # known before the last reading, so that what came just before the end is not missed
            break
        await live.rest(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
        try:
            job = await run_in_threadpool(_job, desk(request).stores, job.id)
        except NotFound:  # deleted
            return
        except (StoreUnavailable, TooBusy):  # it may come back
            continue
    if job.log_host:
        yield f"--- the log is on {job.log_host}: {job.log_path}; this is the end of its last run ---\n".encode()
        yield "".join(text for text in (job.stdout, job.stderr) if text).encode()


def _job(stores: Stores, id: str) -> Job:
    with stores.lend() as store:
        return store.views.job(id)


# -- waiting ---------------------------------------------------------------------------------------------


async def wait_for_job(request: Request, call: Call) -> Response:
    """Wait until a job has finished, but not for ever: `finished` says if it has. If not, ask again."""
    deadline = time.monotonic() + call.query["timeout"]
    stores, live = desk(request).stores, desk(request).live
    job, pause = await run_in_threadpool(_job, stores, call.path["id"]), FIRST_PAUSE
    if not job.finished and call.query["timeout"]:  # only a request that waits counts against the limits
        with desk(request).streams.take(client_of(request)):
            while not job.finished and (left := deadline - time.monotonic()) > 0:
                if await live.rest(min(pause, left)) or await request.is_disconnected():
                    break
                pause = min(pause * 1.5, LONGEST_PAUSE / 2)
                job = await run_in_threadpool(_job, stores, job.id)
    answer: dict[str, Any] = {"finished": job.finished, "job": job.as_json()}
    return JSONResponse(answer)
