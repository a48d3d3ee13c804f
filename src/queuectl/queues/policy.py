"""What is said of a queue, as people write it. Pure."""

from __future__ import annotations

from queuectl.errors import InvalidInput
from queuectl.jobs import job_spec
from queuectl.system import times

MOST = 1_000_000
LIMIT_HELP = "give a number of jobs, 1 or more, or none"


def limit(text: str) -> int | None:
    """So many jobs; None if there is to be no limit."""
    if text == "none":
        return None
    most = job_spec.number_in(text, MOST)
    if most is None:
        hint = "to run nothing, pause the queue: queuectl queue pause" if text == "0" else LIMIT_HELP
        raise InvalidInput(f'"{text[:80]}" is no limit', hint)
    return most


def span(text: str) -> int:
    """The milliseconds of a rate."""
    milliseconds = round(times.parse_duration(text) * 1000)
    if milliseconds < 1:
        raise InvalidInput(f'"{text}" is too short for a rate', 'write "1s", "5m" or "1h"')
    return milliseconds


def ends(field: str, text: str) -> str | None:
    """Ends of runs, in words; None if nothing is to be said of them."""
    return None if text == "none" else " ".join(job_spec.ends(field, text.replace(",", " ").split())) or None
