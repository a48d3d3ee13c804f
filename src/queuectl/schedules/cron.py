"""When a schedule fires. Pure: no clock, and nothing is read but the data of time zones."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile

from cronsim import CronSim, CronSimError

from queuectl.errors import InvalidInput, did_you_mean
from queuectl.system.times import span

EPOCH = datetime(1970, 1, 1)
UTC_EPOCH = EPOCH.replace(tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = 86400  # more than any offset, so the offsets of a zone differ by less than two

WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
NO_WORDS = {
    "@reboot": 'a queue does not start or stop with a machine; write a time, such as "@daily"',
    "@every": "say it as an option: --every 10m",
}
# Of each field: its name, how many values it has, and which.
FIELDS = (
    ("a second", 60, "0-59"),
    ("a minute", 60, "0-59"),
    ("an hour", 24, "0-23"),
    ("a day of the month", 31, "1-31, L for the last, LW for the last from Monday to Friday"),
    ("a month", 12, "1-12 or JAN-DEC"),
    ("a day of the week", 8, "0-7 (Sunday is both), SUN-SAT, 5L for the last Friday, MON#1 for the first Monday"),
)
EXAMPLE = '"30 2 * * *" is 02:30 every day'


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone; made by `parse`."""

    text: str
    zone: str
    fields: str = field(repr=False, compare=False)  # six of them, the second first
    tz: tzinfo = field(repr=False, compare=False)

    @property
    def words(self) -> str:
        """`At 02:30 every day`, for people."""
        return CronSim(self.fields, EPOCH).explain()

    def after(self, moment: int) -> int | None:
        """The first firing after this moment; None if none comes within 50 years, or before the year 10000."""
        _, minute, hour, *_ = self.fields.split()
        names_times = not minute.startswith("*") and not hour.startswith("*")
        try:
            second = self._reaching(moment // 1000) if names_times else self._showing(moment // 1000)
        except (StopIteration, OverflowError):
            return None
        return second * 1000

    def _reaching(self, second: int) -> int:
        """When the clock on the wall first gets as far as a match, or past it.

        So what falls into a gap comes right after it, and what comes twice is taken the first time.
        """
        wall = self._match(self._reached(second))
        start = max(second + 1, wall - DAY)
        end = max(start, wall - self._offset(start))
        change = self._change(start, end)
        return end if change is None else max(change, wall - self._offset(change))

    def _reached(self, second: int) -> int:
        """The latest time the clock on the wall has shown so far: it may have been put back since."""
        change = self._change(second - 2 * DAY, second)
        now = second + self._offset(second)
        return now if change is None else max(now, change - 1 + self._offset(change - 1))

    def _showing(self, second: int) -> int:
        """When the clock on the wall shows a match next, be it for the second time."""
        start = second + 1
        while True:
            offset = self._offset(start)
            match = self._match(start + offset - 1) - offset
            end = min(match, start + 2 * DAY)
            change = self._change(start, end)
            if change is not None:
                start = change
            elif match == end:
                return match
            else:  # Far off: whatever the offset becomes until then, nothing before can match.
                start = max(end, match - 2 * DAY)

    def _match(self, wall: int) -> int:
        """The first match after this wall time, in a world without zones."""
        return (next(CronSim(self.fields, EPOCH + wall * SECOND)) - EPOCH) // SECOND

    def _offset(self, second: int) -> int:
        """How far the clock on the wall is ahead of UTC, in seconds."""
        return ((UTC_EPOCH + second * SECOND).astimezone(self.tz).utcoffset() or timedelta()) // SECOND

    def _change(self, start: int, end: int) -> int | None:
        """The first second until `end` with another offset than `start`. These are two days apart at most.

        The shortest time a zone has kept an offset is four days (Freetown, 1939), so there is one change at most.
        """
        offset = self._offset(start)
        if self._offset(end) == offset:
            return None
        while end - start > 1:
            middle = (start + end) // 2
            start, end = (middle, end) if self._offset(middle) == offset else (start, middle)
        return end


@dataclass(frozen=True, slots=True)
class Every:
    """A firing each `interval` milliseconds after the anchor, whatever the clocks on the walls do."""

    anchor: int
    interval: int

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise InvalidInput("an interval has to be longer than nothing", 'write "90s", "5m" or "1h30m"')

    @property
    def words(self) -> str:
        return f"Every {span(self.interval / 1000)}"

    def after(self, moment: int) -> int:
        """The first firing after this moment."""
        return self.anchor + max((moment - self.anchor) // self.interval + 1, 1) * self.interval


Plan = Cron | Every


def firings(plan: Plan, after: int, count: int) -> list[int]:
    """The next firings after a moment; fewer than `count` only at the end of all dates."""
    return list(islice(_onwards(plan, after), count))


def between(plan: Plan, after: int, until: int, limit: int) -> list[int]:
    """The firings after a moment and until another, that one included: at most `limit`, oldest first."""
    return list(islice(takewhile(lambda firing: firing <= until, _onwards(plan, after)), limit))


def _onwards(plan: Plan, moment: int) -> Iterator[int]:
    while (firing := plan.after(moment)) is not None:
        yield firing
        moment = firing


def parse(text: str, zone: str) -> Cron:
    """Read five fields, six with the second in front, or a word such as @daily."""
    words = text.split()
    text = " ".join(words)
    if text.startswith("@"):
        text = text.lower()
        words = _fields_of(text).split()
    if len(words) not in (5, 6):
        what = (
            f'"{text}" has {len(words)} {"field" if len(words) == 1 else "fields"}, not five or six'
            if words
            else "a cron expression is missing"
        )
        hint = f"write [second] minute hour day-of-the-month month day-of-the-week; {EXAMPLE}"
        raise InvalidInput(what, hint)
    fields = words if len(words) == 6 else ["0", *words]
    for index in range(6):
        _check(fields, index)
    cron = Cron(text, zone, " ".join(fields), known_zone(zone))
    try:
        cron._match(0)
    except (CronSimError, StopIteration):
        hint = "February has 29 days at most; April, June, September and November have 30"
        raise InvalidInput(f'"{text}" never fires: there is no such day', hint) from None
    return cron


def _fields_of(text: str) -> str:
    word = text.split()[0]
    if text in WORDS:
        return WORDS[text]
    if word in WORDS:
        raise InvalidInput(f'"{text}" has something after "{word}"', f'write just "{word}"')
    raise InvalidInput(f'there is no "{word}"', NO_WORDS.get(word) or did_you_mean(word, list(WORDS)))


def _check(fields: list[str], index: int) -> None:
    """Refuse a field that cannot be understood even among others that can."""
    name, size, takes = FIELDS[index]
    among = ["0", "0", "0", "*", "*", "*"]
    among[index] = fields[index]
    try:
        CronSim(" ".join(among), EPOCH)
        good = fields[index].isascii() and all(_steps_well(term, size) for term in fields[index].split(","))
    except (CronSimError, ValueError):  # ValueError: thousands of digits
        good = False
    if not good:
        hint = f"it takes {takes}, *, lists 1,2, ranges 1-5, steps up to */{size}; {EXAMPLE}"
        raise InvalidInput(f'"{fields[index]}" is not {name}', hint)


def _steps_well(term: str, size: int) -> bool:
    """Whether a step means what it says: */90 is not every 90 minutes, and cronsim takes 5-5/10 for 5-59/10."""
    values, slash, step = term.partition("/")
    first, dash, last = values.partition("-")
    return not slash or (int(step) <= size and not (dash and first.lstrip("0") == last.lstrip("0")))


def known_zone(name: str) -> tzinfo:
    """The time zone of a name that somebody has given."""
    tz = find_zone(name)
    if tz is None:
        raise InvalidInput(f'there is no time zone "{name}"' if name else "a time zone is missing", _meant(name))
    return tz


def find_zone(name: str) -> tzinfo | None:
    """The time zone of an IANA name, if it is one: these mean the same on every machine."""
    if name == "UTC":
        return UTC
    if name.split("/")[0] in ("localtime", "posixrules", "posix", "right"):
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # not there; a path instead of a name; a folder
        return None


def _meant(name: str) -> str:
    """A hint at the zone meant; "berlin" and "New York" are enough."""
    import difflib  # only ever needed on the way to an error

    zones = sorted(zoneinfo.available_timezones() - {"localtime"})
    spellings = {zone.rpartition("/")[2].lower(): zone for zone in zones} | {zone.lower(): zone for zone in zones}
    word = name[:100].replace(" ", "_").lower()
    # "PST" is a zone's abbreviation, and near to nothing but other such.
    close = difflib.get_close_matches(word, spellings, n=1, cutoff=0.8 if len(word) > 4 else 1)
    return f'did you mean "{spellings[close[0]]}"?' if close else 'write a name such as "Europe/Berlin", or "UTC"'
