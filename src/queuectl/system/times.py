"""Moments, durations and numbers as people write them. Inside, a moment is whole milliseconds since 1970, UTC."""

from __future__ import annotations

import time

from queuectl.errors import InvalidInput

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_DELAY = 100 * 365 * 86400
LAST_MOMENT = 253_402_300_799_999  # of the year 9999

MOMENT_HELP = 'write "2026-11-16 09:00", "09:00", "tomorrow 9:00", an ISO 8601 time, or a delay: "90s", "5m", "1h30m"'


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(moment: int | None) -> str | None:
    """`2026-11-15T10:33:24.123Z`"""
    if moment is None:
        return None
    seconds, millis = divmod(moment, 1000)
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{millis:03d}Z"


def local(moment: int) -> str:
    """`2026-11-16 09:00:00 CET`, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(moment / 1000))


def in_zone(moment: int, zone: str) -> str:
    """`Mon 2026-11-16 02:30:00 CET`: the clock on a wall there, for people."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    try:
        tz = UTC if zone == "UTC" else ZoneInfo(zone)
    except (LookupError, ValueError, OSError):  # a zone that this machine does not know
        tz = UTC
    there = datetime.fromtimestamp(moment / 1000, tz)
    return f"{there:%a %Y-%m-%d %H:%M:%S %Z}"


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "5m", "1h30m", "1.5h"."""
    seconds, number, rest = 0.0, "", text.strip().lower()
    if not rest:
        raise InvalidInput("a duration is missing", 'write "90s", "5m" or "1h30m"')
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        number, rest = rest[:digits], rest[digits:]
        letters = len(rest) - len(rest.lstrip("abcdefghijklmnopqrstuvwxyz"))
        unit, rest = rest[:letters] or ("s" if number == text.strip() else ""), rest[letters:].lstrip()
        try:
            seconds += float(number) * UNITS[unit]
        except (ValueError, KeyError):  # "1h30" too: half an hour or half a minute?
            raise InvalidInput(f'"{text}" is not a duration', 'write "90s", "5m" or "1h30m"') from None
    if seconds > LONGEST_DELAY:
        raise InvalidInput(f'"{text}" is longer than 100 years', "write a shorter one")
    return seconds


def parse_moment(text: str, now: int) -> int:
    """The moment a person means; a bare duration counts from `now`, a time without a zone is local."""
    delay = parse_delay(text)
    return _parse_calendar(text.strip(), now) if delay is None else now + delay


def parse_delay(text: str) -> int | None:
    """Milliseconds in "5m", "in 5m" and "now"; None if it is no delay, but a time."""
    words = text.strip().lower()
    delay = words.removeprefix("in ")
    if words == "now":
        return 0
    if delay != words or (delay[:1].isdigit() and not any(mark in delay for mark in "-:t ")):
        return round(parse_duration(delay) * 1000)
    return None


def _parse_calendar(words: str, now: int) -> int:
    from datetime import datetime, timedelta  # here: a plain enqueue must not pay for it

    today = datetime.fromtimestamp(now / 1000)
    day, _, clock = words.rpartition(" ")
    try:
        if ":" in words and "-" not in words and words.isascii() and day.lower() in ("", "today", "tomorrow"):
            time_of_day = datetime.strptime(clock, "%H:%M" if clock.count(":") == 1 else "%H:%M:%S").time()
            moment = datetime.combine(today, time_of_day)
            if day.lower() == "tomorrow" or (not day and moment <= today):
                moment += timedelta(days=1)
        else:
            moment = datetime.fromisoformat(words)
        when = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(f'"{words}" is not a time', MOMENT_HELP) from None
    if when > LAST_MOMENT:
        raise InvalidInput(f'"{words}" is after the year 9999', MOMENT_HELP)
    return when


def span(seconds: float) -> str:
    """`850ms`, `4.2s`, `3m 20s`, `2h 5m`, `3d 4h`: short enough for a table."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    for unit, size, lesser, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f" {rest}{lesser}" if rest else "")
    return f"{whole}s"


def exactly(milliseconds: int) -> str:
    """A span that `parse_duration` reads as the same: for a field that somebody may leave as it is."""
    short = span(milliseconds / 1000)
    return short if round(parse_duration(short) * 1000) == milliseconds else f"{milliseconds}ms"


def plural(number: int, noun: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
