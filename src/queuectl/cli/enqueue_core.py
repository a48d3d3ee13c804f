"""What `queuectl enqueue` does, however it was spelled."""

from __future__ import annotations

import sys

from queuectl.cli.render import listed, note, remember_address, visible
from queuectl.cli.streams import changed
from queuectl.errors import Conflict, InvalidInput, StoreUnavailable
from queuectl.jobs import job_spec
from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, open_store
from queuectl.system import times
from queuectl.system.times import plural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from queuectl.store.views import JobReader

LONGEST_LINE = 4 << 20
LARGEST_ARRAY = 1_000_000
ARRAY_INDEX = "QUEUECTL_ARRAY_INDEX"
NO_WORKER = "No worker is running here. Start one: queuectl worker start --count 2"


def submit(
    words: Sequence[str] = (),
    db: str | None = None,
    id: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    max_retries: int | None = None,
    backoff_base: float | None = None,
    timeout: str | None = None,
    at: str | None = None,
    delay: str | None = None,
    cwd: str | None = None,
    env: Sequence[str] = (),
    tags: Sequence[str] = (),
    after: Sequence[str] = (),
    after_fail: Sequence[str] = (),
    after_any: Sequence[str] = (),
    batch: str | None = None,
    max_fails: int | None = None,
    array: str | None = None,
    key: str | None = None,
    key_limit: int | None = None,
    retry_on: str | None = None,
    no_retry_on: str | None = None,
    unique: str | None = None,
    on_duplicate: str | None = None,
    notify: Sequence[str] = (),
    file: str | None = None,
    lines: bool = False,
    wait: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Store what was asked for and say so; the exit code."""
    remember_address(db)
    store = open_store(db) if after or after_fail or after_any else None
    given = {
        "id": id,
        "queue": queue,
        "priority": priority,
        "max_retries": max_retries,
        "backoff_base": backoff_base,
        "timeout_seconds": timeout,
        "run_at": _moment(at, delay),
        "cwd": cwd,
        "env": environment(env),
        "tags": list(tags) or None,
        "batch": batch,
        "max_fails": max_fails,
        "key": key,
        "key_limit": key_limit,
        "retry_on": None if retry_on is None else retry_on.replace(",", " ").split(),
        "no_retry_on": None if no_retry_on is None else no_retry_on.replace(",", " ").split(),
        "unique_key": unique,
        "on_duplicate": on_duplicate,
        "notify": list(notify) or None,
        "depends_on": store and _dependencies(store, {"ok": after, "fail": after_fail, "any": after_any}),
    }
    options: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if list(words) == ["-"]:
        words, file = (), "-"
    if array is not None:
        if file is not None or lines or (words and words[0].lstrip().startswith("{")):
            raise InvalidInput("--array takes a plain command", "give the other fields as options")
        return _store_array(store or open_store(db), words, options, array, wait, quiet, json)
    if file is not None or lines:
        jobs, line_of = _read_batch(file or "-", lines, words, options)
        places = [f"line {number}" for number in line_of]
        return _store_batch(store or open_store(db), jobs, places, wait, quiet, json)
    job = _one_job(words, options)
    store = store or open_store(db)
    there: list[str] = []
    stored = store.views.reader() if json and not wait else None
    moments = []  # of the transaction, on the database's clock
    [job_id] = store.enqueue(
        [job], skipped=there.append, before_commit=stored or (lambda tx, _: moments.append(tx.now))
    )
    return _answer(store, job, job_id, wait, quiet, json, stored, new=not there, now=(moments or [0])[-1])


# -- one job ---------------------------------------------------------------------------------------------


def _one_job(words: Sequence[str], options: dict[str, object]) -> NewJob:
    if not words:
        raise InvalidInput("nothing to enqueue", "give a command: queuectl enqueue 'echo hello'")
    if len(words) > 1:
        return job_spec.from_fields({"command": job_spec.quote(words), **options})
    if not words[0].lstrip().startswith("{"):
        return job_spec.from_fields({"command": words[0], **options})
    fields = _parse_json(words[0], _json_decoder())
    both = sorted(_named(fields) & options.keys())
    if both:
        raise InvalidInput(f'"{both[0]}" is given in the JSON and as an option', "keep one of them")
    return job_spec.from_fields({**options, **fields})


def _answer(
    store: Store,
    job: NewJob,
    job_id: str,
    wait: bool,
    quiet: bool,
    json: bool,
    stored: JobReader | None,
    new: bool,
    now: int,
) -> int:
    changed(f"Stored as {job_id}" if new else f"Nothing is stored, as job {job_id} has the key")
    if stored:
        from queuectl.cli.render import emit_json

        emit_json(stored.job().as_json())
    elif quiet:
        sys.stdout.write(f"{job_id}\n")
    elif not json and not new:
        sys.stdout.write(f"Skipped: job {job_id} has the key {visible(job.unique_key or '')} already.\n")
    elif not json:
        sys.stdout.write(f"Enqueued {job_id}: {visible(job.command)}\n")
        if (due := job.due(now)) > now:
            sys.stdout.write(f"It runs at {times.local(due)} (in {times.span((due - now) / 1000)}).\n")
        if job.depends_on:
            sys.stdout.write(f"It waits for {', '.join(id for id, _ in job.depends_on)}.\n")
    mention_missing_worker(store, [job.queue])
    if wait:
        sys.stdout.flush()
        from queuectl.cli.logs import follow_to_the_end

        try:
            return follow_to_the_end(store, job_id, json=json, quiet=quiet)
        except StoreUnavailable as error:
            raise _stored_at_least(error, f'job "{job_id}" is', f"queuectl wait {job_id}") from None
    return 0


def _stored_at_least(error: StoreUnavailable, what: str, command: str) -> StoreUnavailable:
    """Waiting has failed, not storing: that must not be done twice."""
    return type(error)(f"{what} stored, but waiting failed: {error.message}", f"wait again: {command}")


def mention_missing_worker(store: Store, queues: Iterable[str]) -> None:
    """Say so if nobody is there to run jobs of these queues, or if they are paused; nothing if that cannot be found
    out: what was to be done before is done."""
    try:
        told, paused = store.attendance()
    except StoreUnavailable:
        return
    if not told:
        note(NO_WORKER)
        return
    for queue in sorted(set(queues)):
        if not _is_served(queue, told):
            note(f'No worker serves the queue "{queue}". Start one: queuectl worker start --queue {queue}')
        elif queue in paused:
            note(f'The queue "{queue}" is paused. Let it go on: queuectl queue resume {queue}')


def _is_served(queue: str, told: Sequence[Sequence[str]]) -> bool:
    if not all(told):  # most workers serve all queues, and need not load more than this
        return True
    from queuectl.queues.selection import serves

    return any(serves(words, queue) for words in told)


def _moment(at: str | None, delay: str | None) -> str | None:
    if at is not None and delay is not None:
        raise InvalidInput("--at and --delay are both given", "keep one of them")
    if delay is not None:
        times.parse_duration(delay)
        return f"in {delay}"
    return at


def _dependencies(store: Store, after: dict[str, Sequence[str]]) -> list[dict[str, str]]:
    from queuectl.store import resolve_id

    return [
        {"id": resolve_id.resolve(store.engine, id), "condition": condition}
        for condition, ids in after.items()
        for id in ids
    ]


def environment(pairs: Sequence[str]) -> dict[str, str] | None:
    """Variables from `NAME=value`."""
    env = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(f'"{pair}" sets no variable', "write --env NAME=value")
        env[key] = value
    return env or None


def _store_array(
    store: Store, words: Sequence[str], options: dict[str, object], array: str, wait: bool, quiet: bool, json: bool
) -> int:
    """The same command once for each number, as one batch."""
    numbers, at_once = _numbers(array)
    own = options.pop("id", None)
    options.setdefault("batch", own or job_spec.new_id())
    if at_once:
        if "key" in options or "key_limit" in options:
            raise InvalidInput(f'both --key and "%{at_once}" are given', "keep one; --key-limit says how many")
        options.update(key=f"array {str(options['batch'])[:60]} {job_spec.new_id()}", key_limit=at_once)
    env = options.pop("env", None) or {}
    assert isinstance(env, dict)
    jobs = [
        _one_job(
            words,
            {**options, "env": {**env, ARRAY_INDEX: str(number)}, **({"id": f"{own}.{number}"} if own else {})},
        )
        for number in numbers
    ]
    places = [f"number {number}" for number in numbers]
    return _store_batch(store, jobs, places, wait, quiet, json, f" as batch {options['batch']}")


def _numbers(array: str) -> tuple[range, int]:
    """`1-100`, or `0-90:10` in steps; how many at once, if that is said as in `1-100%8`, else 0."""
    span, percent, most = array.partition("%")
    span, _, step = span.partition(":")
    first, dash, last = span.partition("-")
    words = (first, last if dash else first, step or "1", most if percent else "1")
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words) or 0 in map(int, words[2:]):
        hint = "write --array 1-100, 1-100%8 for 8 at once, or 0-90:10 in steps of ten"
        raise InvalidInput(f'"{array}" is no range of numbers', hint)
    numbers = range(int(words[0]), int(words[1]) + 1, int(words[2]))
    if not 1 <= len(numbers) <= LARGEST_ARRAY:
        raise InvalidInput(f'"{array}" has {len(numbers):,} numbers', f"it takes 1 to {LARGEST_ARRAY:,}")
    return numbers, int(words[3]) if percent else 0


# -- many jobs -------------------------------------------------------------------------------------------


def _read_batch(
    file: str, lines: bool, words: Sequence[str], options: dict[str, object]
) -> tuple[list[NewJob], list[int]]:
    """All jobs of a file or of standard input, and the line of each. An error names its line."""
    if words:
        raise InvalidInput(
            "both a command and a batch of jobs are given", "keep one; --lines and - read from standard input"
        )
    if "id" in options:
        raise InvalidInput("--id cannot serve many jobs", 'give each its own: {"id": "…", "command": "…"}')
    jobs, line_of = [], []
    decode = None if lines else _json_decoder()
    for number, raw in enumerate(_lines_of(file), start=1):
        try:
            line = _decoded(raw)
            if not line:
                continue
            fields: dict[str, object] = _parse_json(line, decode) if decode else {"command": line}
            if options:
                named = _named(fields)
                fields = {key: value for key, value in options.items() if key not in named} | fields
            jobs.append(job_spec.from_fields(fields))
        except InvalidInput as error:
            raise error.at(f"line {number}") from None
        line_of.append(number)
    return jobs, line_of


def _lines_of(file: str) -> Iterator[bytes]:
    """The lines of a file; of one that is too long, a part that is still too long."""
    try:
        with open(0 if file == "-" else file, "rb", closefd=file != "-") as source:
            while line := source.readline(LONGEST_LINE + 1):
                yield line
    except OSError as error:
        raise InvalidInput(f'cannot read "{file}": {error.strerror}', "check the name") from None


def _decoded(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        raise InvalidInput("longer than 4 MiB", "write one job a line")
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        raise InvalidInput("not valid UTF-8", "convert the file first, for example with iconv") from None


def _store_batch(
    store: Store, jobs: list[NewJob], places: list[str], wait: bool, quiet: bool, json: bool, name: str = ""
) -> int:
    """Store all of them or none; `places` says where each came from, for an error."""
    if not jobs:
        raise InvalidInput("there was no job in the input", "one JSON object a line, or plain commands with --lines")
    from queuectl.cli.render import Progress

    try:
        with Progress("Storing", len(jobs)) as progress:
            there: list[str] = []
            ids = store.enqueue(jobs, progress.step, there.append)
    except Conflict as error:
        raise (error if error.index is None else error.at(places[error.index])) from None
    changed(f"Stored {plural(len(ids) - len(there), 'job')}{name}: {listed(ids)}")
    if quiet or json:
        sys.stdout.write("".join(f"{id}\n" for id in ids) if quiet else _json_array(ids))
    else:
        skipped = f" {len(there):,} skipped: their keys are taken." if there else ""
        sys.stdout.write(f"Enqueued {plural(len(ids) - len(there), 'job')}{name}.{skipped}\n")
    mention_missing_worker(store, (job.queue for job in jobs))
    if wait:
        from queuectl.cli.logs import wait_for

        try:
            return wait_for(store, ids, None)
        except StoreUnavailable as error:
            raise _stored_at_least(error, f"{plural(len(ids), 'job')} are", "queuectl wait --all") from None
    return 0


def _json_array(ids: list[str]) -> str:
    import json

    return json.dumps(ids) + "\n"


def _json_decoder() -> Callable[[str], object]:
    from queuectl.system.strict_json import decoder  # here, and below: a plain enqueue loads no JSON

    return decoder()


def _parse_json(text: str, decode: Callable[[str], object]) -> dict[str, object]:
    """The fields of one JSON object."""
    from queuectl.system.strict_json import parse

    plain = "one JSON object a line; plain commands need --lines"
    fields = parse(text, decode, "check the quotes and commas" if text.startswith("{") else plain)
    if not isinstance(fields, dict):
        raise InvalidInput("a job is a JSON object", 'for example {"command": "true"}; plain commands need --lines')
    return fields


def _named(fields: dict[str, object]) -> set[str]:
    return {job_spec.ALIASES.get(key, key) for key in fields}
