"""How to make the same job again: as fields, and as a command to paste into a shell. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal

from queuectl.jobs import job_spec
from queuectl.jobs.model import Job
from queuectl.system import times
from queuectl.system.escaping import visible_lines

OPTIONS = {
    "queue": "--queue",
    "priority": "--priority",
    "max_retries": "--max-retries",
    "backoff_base": "--backoff-base",
    "timeout_seconds": "--timeout",
    "run_at": "--at",
    "cwd": "--cwd",
    "batch": "--batch",
    "key": "--key",
    "key_limit": "--key-limit",
    "unique_key": "--unique",
}
REPEATED = {"tags": "--tag", "notify": "--notify"}
AS_THEY_ARE = (
    "cwd", "env", "tags", "batch", "key", "key_limit", "retry_on", "no_retry_on", "unique_key", "notify"
)  # fmt: skip
AFTER = {"ok": "--after", "fail": "--after-fail", "any": "--after-any"}


def fields_of(job: Job, config: Mapping[str, float], now: int) -> dict[str, object]:
    """What `newjob.from_fields` makes such a job of. What it would take from the settings anyway is left out, and so
    is its id, which another one cannot have."""
    fields: dict[str, object] = {"command": job.command}
    if job.queue != "default":
        fields["queue"] = job.queue
    if job.priority:
        fields["priority"] = job.priority
    for name in ("max_retries", "backoff_base"):
        if getattr(job, name) != config[name]:
            fields[name] = getattr(job, name)
    if (job.timeout_seconds or 0) != config["job_timeout"]:
        fields["timeout_seconds"] = job.timeout_seconds or 0
    if not job.run and job.run_at > now:  # later it is the time of a retry
        fields["run_at"] = times.iso(job.run_at)
    for name in AS_THEY_ARE:
        if value := getattr(job, name):
            fields[name] = list(value) if isinstance(value, tuple) else value
    if job.depends_on:
        fields["depends_on"] = [{"id": id, "condition": condition} for id, condition in job.depends_on]
    return fields


def command_line(job: Job, config: Mapping[str, float], now: int) -> str:
    """The `queuectl enqueue` that makes such a job. All of it can be seen: where options could not be, it is JSON."""
    fields = fields_of(job, config, now)
    line = job_spec.quote(["queuectl", "enqueue", *_words(fields, job)])
    if line == visible_lines(line):
        return line
    return job_spec.quote(["queuectl", "enqueue", json.dumps(fields).replace("\x7f", "\\u007f")])  # JSON lets that be


def _words(fields: Mapping[str, object], job: Job) -> Iterator[str]:
    for name, option in OPTIONS.items():
        if name in fields:
            yield from (option, text(fields[name]))
    for variable, value in job.env.items():
        yield from ("--env", f"{variable}={value}")
    for name, option in REPEATED.items():
        for value in getattr(job, name):
            yield from (option, value)
    for id, condition in job.depends_on:
        yield from (AFTER[condition], id)
    for option, ends in (("--retry-on", job.retry_on), ("--no-retry-on", job.no_retry_on)):
        if ends:
            yield from (option, ",".join(ends))
    yield "--"
    # What begins like JSON would be read as JSON, and "-" is standard input.
    plain = not job.command.lstrip().startswith("{") and job.command != "-"
    yield job.command if plain else json.dumps({"command": job.command}, ensure_ascii=False)


def text(value: object) -> str:
    """A number in full: a duration takes no exponent."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0") if isinstance(value, float) else str(value)
