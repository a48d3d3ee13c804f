"""When a schedule fires. The judge is brute force: what a clock on a wall shows, minute by minute."""

from __future__ import annotations

import zoneinfo
from bisect import bisect_left
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.schedules import cron
from queuectl.schedules.cron import Cron, Every, between, firings, parse
from queuectl.system.times import LAST_MOMENT

MINUTE, HOUR, DAY = 60, 3600, 86400
NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z, a Friday

ZONES = [
    "Africa/Cairo",  # four changes in 2010 and 2014
    "Africa/Casablanca",  # winter time in Ramadan
    "America/New_York",
    "America/Sao_Paulo",  # changed at midnight
    "America/St_Johns",  # changed at 00:01
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",  # changes at midnight
    "Asia/Gaza",
    "Asia/Tehran",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Pacific/Apia",  # had no 30 December 2011
    "UTC",
]
# How the wall moved in other ways, further back.
OLD_ZONES = [
    "Africa/Freetown",
    "Africa/Monrovia",
    "America/Caracas",
    "Asia/Kathmandu",
    "Europe/Dublin",
    "Pacific/Kwajalein",
]


def utc(text: str) -> int:
    """The moment of `2027-01-15 08:00`, in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def local(zone: str, *moments: int | None) -> list[str]:
    """`03-28 03:00 +02`: what people see."""
    tz = ZoneInfo(zone)
    return [f"{datetime.fromtimestamp(m / 1000, tz):%m-%d %H:%M %Z}" for m in moments if m is not None]


# The judge. Moments are in seconds here; nothing of the module under test or of its library is used.


def on_the_wall(zone: str, second: int) -> datetime:
    return datetime.fromtimestamp(second, ZoneInfo(zone)).replace(tzinfo=None)


def values(field: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        start = first if span == "*" else int(low)
        end = last if span == "*" or (step and not high) else int(high or low)
        found.update(range(start, end + 1, int(step or 1)))
    return found


class Expression:
    """What a cron expression of plain numbers means, read once more."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
        self.fixed = minute[0] != "*" and hour[0] != "*"
        self.both_days = day[0] == "*" or weekday[0] == "*"
        self.seconds, self.minutes, self.hours = values(second, 0, 59), values(minute, 0, 59), values(hour, 0, 23)
        self.days, self.months = values(day, 1, 31), values(month, 1, 12)
        self.weekdays = {number % 7 for number in values(weekday, 0, 7)}

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.second not in self.seconds:
            return False
        days = (wall.day in self.days, wall.isoweekday() % 7 in self.weekdays)
        return wall.month in self.months and (all(days) if self.both_days else any(days))


Grid = list[tuple[int, datetime]]


def grid(zone: str, start: int, end: int, step: int) -> Grid:
    return [(second, on_the_wall(zone, second)) for second in range(start, end + 1, step)]


def judged(text: str, points: Grid) -> list[int]:
    """All firings after the first of these points, by the rules as the documentation words them."""
    expression = Expression(text)
    if not expression.fixed:
        return [second * 1000 for second, wall in points[1:] if expression.matches(wall)]
    found: set[int] = set()
    shown: set[datetime] = set()
    step = timedelta(seconds=points[1][0] - points[0][0])
    for (_, before), (second, wall) in pairwise(points):
        shown.add(before)
        if wall not in shown and expression.matches(wall):  # the second time does not count
            found.add(second * 1000)
        skipped = before + step
        while skipped < wall:  # a gap: what was due in it happens right after it
            if expression.matches(skipped):
                found.add(second * 1000)
            skipped += step
    return sorted(found)


@cache
def changes(zone: str, first_year: int = 2005, last_year: int = 2030) -> list[tuple[int, int]]:
    """Each second at which the offset of a zone changes, and by how much."""

    def offset(second: int) -> int:
        return round((on_the_wall(zone, second) - datetime(1970, 1, 1)).total_seconds()) - second

    found = []
    days = range(utc(f"{first_year}-01-01") // 1000, utc(f"{last_year + 1}-01-01") // 1000, DAY)
    for (day, before), (_, after) in pairwise((day, offset(day)) for day in days):
        if before != after:
            exact = day + bisect_left(range(DAY), True, key=lambda second: offset(day + second) != before)
            found.append((exact, after - before))
    return found


def disagreements(plan: Cron, points: Grid, change: int, shift: int) -> list[str]:
    """How a plan differs from the judge between these points, wherever one starts to ask."""
    zone, what = plan.zone, f"{plan.text} {plan.zone}"
    expected = judged(plan.text, points)
    found = between(plan, points[0][0] * 1000, points[-1][0] * 1000, 100_000)
    wrong = [] if found == expected else [f"{what}: {local(zone, *found)} instead of {local(zone, *expected)}"]
    for begin in (change - abs(shift), change, change + abs(shift) // 2, change + abs(shift)):
        for moment in (begin * 1000 - 1, begin * 1000):
            later = next((firing for firing in expected if firing > moment), None)
            if later and plan.after(moment) != later:
                wrong.append(f"{what}: not {local(zone, later)} after {local(zone, moment)}")
    return wrong


AROUND_A_CHANGE = [
    # Times of day: once each.
    "30 2 * * *", "0 3 * * *", "0 0 * * *", "15 1 * * *", "45 23 * * *", "0,30 1-3 * * *", "1-59/29 0-4/2 * * *",
    # They follow real time.
    "*/10 * * * *", "*/7 * * * *", "0 */2 * * *", "15 * * * *", "*/30 0-2 * * *",
    # Days that have to agree, and days of which one is enough.
    "30 0-3 */2 * 0", "30 0-3 1-7 * 0", "*/15 2 8-31 3-10 5-7",
]  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_around_every_change_of_the_clocks_each_firing_is_where_brute_force_finds_it(zone: str) -> None:
    wrong, plans = [], [parse(text, zone) for text in AROUND_A_CHANGE]
    for change, shift in changes(zone) or [(NOW // 1000, 0)]:
        around = 2 * HOUR + abs(shift)
        points = grid(zone, change - around, change + around, MINUTE)
        for plan in plans:
            wrong += disagreements(plan, points, change, shift)
    assert wrong == []


@pytest.mark.parametrize(
    "zone", ["Africa/Cairo", "America/St_Johns", "Antarctica/Troll", "Europe/Berlin", "Pacific/Apia"]
)
@pytest.mark.parametrize("text", ["30 30 2 * * *", "0,30 0,30 0-3 * * *", "30 */15 * * * *", "*/30 59,0 * * * *"])
def test_the_same_holds_with_seconds(zone: str, text: str) -> None:
    wrong, plan = [], parse(text, zone)
    for change, shift in changes(zone, 2010, 2014) or [(NOW // 1000, 0)]:
        around = HOUR + abs(shift)
        points = grid(zone, change - around, change + around, 30)
        wrong += disagreements(plan, points, change, shift)
    assert wrong == []


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("text", ["* * * * * *", "*/7 59,0,1 * * * *", "* 0,29 0-3 * * *", "5-9 59 1-3 * * *"])
def test_the_same_holds_second_by_second(zone: str, text: str) -> None:
    wrong, plan = [], parse(text, zone)
    for change, shift in changes(zone, 2026, 2026):
        around = abs(shift) + 2 * MINUTE
        points = grid(zone, change - around, change + around, 1)
        wrong += disagreements(plan, points, change, shift)
    assert wrong == []


@pytest.mark.parametrize("zone", ["Africa/Cairo", "Africa/Casablanca", "Europe/Berlin", "Pacific/Apia", "UTC"])
def test_over_whole_years_nothing_is_left_out_and_nothing_is_made_up(zone: str) -> None:
    points = grid(zone, utc("2009-12-31") // 1000, utc("2014-12-31") // 1000, HOUR // 2)
    for text in (
        "0 0 * * *",
        "30 2 1 * *",
        "0 4 29 2 *",
        "0 0 31 * *",
        "0 */6 1 * *",
        "*/30 5 1,30 * 1",
        "0 0 1 1 *",
    ):
        found = between(parse(text, zone), points[0][0] * 1000, points[-1][0] * 1000, 100_000)
        assert local(zone, *found) == local(zone, *judged(text, points)), text


# What people would look up, written out.


def seen(text: str, zone: str, after: str, count: int) -> list[str]:
    return local(zone, *firings(parse(text, zone), utc(after), count))


def test_a_time_that_the_clocks_skip_happens_right_after_the_gap() -> None:
    assert seen("30 2 * * *", "Europe/Berlin", "2027-03-27 00:00", 3) == [
        "03-27 02:30 CET", "03-28 03:00 CEST", "03-29 02:30 CEST",
    ]  # fmt: skip


def test_several_times_in_one_gap_are_one_firing() -> None:
    assert seen("0,30 1-3 * * *", "Europe/Berlin", "2027-03-27 23:59", 5) == [
        "03-28 01:00 CET", "03-28 01:30 CET", "03-28 03:00 CEST", "03-28 03:30 CEST", "03-29 01:00 CEST",
    ]  # fmt: skip


def test_a_time_that_comes_twice_happens_the_first_time() -> None:
    assert seen("30 2 * * *", "Europe/Berlin", "2027-10-30 12:00", 2) == ["10-31 02:30 CEST", "11-01 02:30 CET"]


def test_six_fields_are_no_different_and_a_gap_may_be_half_an_hour() -> None:
    assert seen("15 10 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", 2) == [
        "10-04 02:30 +11",
        "10-05 02:10 +11",
    ]
    assert seen("0 45 1 * * *", "Australia/Lord_Howe", "2026-04-04 00:00", 2) == [
        "04-05 01:45 +11",
        "04-06 01:45 +1030",
    ]


def test_a_repeated_interval_goes_on_through_both_hours() -> None:
    plan = parse("*/10 * * * *", "Europe/Berlin")
    for night in ("2027-03-28 00:00", "2027-10-31 00:00"):
        found = between(plan, utc(night), utc(night) + 3 * HOUR * 1000, 100)
        assert found == [utc(night) + tens * 600_000 for tens in range(1, 19)]


def test_what_follows_real_time_makes_nothing_up_for_the_missing_hour() -> None:
    assert seen("*/30 2 * * *", "Europe/Berlin", "2027-03-28 00:00", 1) == ["03-29 02:00 CEST"]


def test_the_second_of_two_hours_is_not_overlooked_even_if_the_next_match_is_months_away() -> None:
    assert seen("*/30 2 31 3,10 *", "Europe/Berlin", "2027-10-31 00:00", 4) == [
        "10-31 02:30 CEST", "10-31 02:00 CET", "10-31 02:30 CET", "03-31 02:00 CEST",
    ]  # fmt: skip


def test_midnight_that_does_not_exist_is_one_o_clock() -> None:
    assert seen("@daily", "America/Sao_Paulo", "2018-11-03 12:00", 2) == ["11-04 01:00 -02", "11-05 00:00 -02"]
    assert seen("@daily", "Asia/Beirut", "2022-03-26 12:00", 2) == ["03-27 01:00 EEST", "03-28 00:00 EEST"]


def test_midnight_that_comes_twice_is_one_day() -> None:
    assert seen("@daily", "America/Sao_Paulo", "2018-02-17 01:00", 3) == [
        "02-17 00:00 -02", "02-18 00:00 -03", "02-19 00:00 -03",
    ]  # fmt: skip


def test_a_day_that_a_country_skipped_happens_with_the_next() -> None:
    assert seen("30 2 * * *", "Pacific/Apia", "2011-12-29 00:00", 3) == [
        "12-29 02:30 -10", "12-31 00:00 +14", "12-31 02:30 +14",
    ]  # fmt: skip
    assert seen("30 2 30 * *", "Pacific/Apia", "2011-12-01 00:00", 1) == ["12-31 00:00 +14"]
    assert seen("*/30 2 30 12 *", "Pacific/Apia", "2011-12-01 00:00", 1) == ["12-30 02:00 +14"]


def test_when_days_of_month_and_week_are_both_given_one_is_enough_unless_one_has_a_star() -> None:
    assert seen("0 0 13 * 5", "UTC", "2027-08-01 00:00", 3) == [
        "08-06 00:00 UTC",
        "08-13 00:00 UTC",
        "08-20 00:00 UTC",
    ]
    assert seen("0 0 */12 * 5", "UTC", "2027-08-01 00:00", 1) == ["08-13 00:00 UTC"]


@pytest.mark.parametrize(
    ("text", "firing"),
    [
        ("0 0 L * *", "01-31 00:00 UTC"),
        ("0 0 LW * *", "01-29 00:00 UTC"),
        ("0 0 * * 5L", "01-29 00:00 UTC"),
        ("0 0 * * mon#3", "01-18 00:00 UTC"),
        ("0 0 * * SUN", "01-17 00:00 UTC"),
        ("0 0 * * 7", "01-17 00:00 UTC"),
        ("0 0 1 Feb *", "02-01 00:00 UTC"),
        ("0 9-17/4 * * *", "01-15 09:00 UTC"),
        ("5/20 * * * *", "01-15 08:05 UTC"),
        ("*/60 */24 * * *", "01-16 00:00 UTC"),
        (" 1\t2  3\n4 * ", "04-03 02:01 UTC"),
    ],
)
def test_the_notation_is_that_of_cron(text: str, firing: str) -> None:
    assert local("UTC", parse(text, "UTC").after(NOW)) == [firing]


@pytest.mark.parametrize(
    ("word", "same", "as_words"),
    [
        ("@hourly", "0 * * * *", "At the start of every hour"),
        ("@daily", "0 0 * * *", "At 00:00 every day"),
        ("@midnight", "0 0 * * *", "At 00:00 every day"),
        ("@Weekly", "0 0 * * 0", "At 00:00 on Sunday"),
        ("@MONTHLY", "0 0 1 * *", "At 00:00 on the first day of every month"),
        (" @yearly ", "0 0 1 1 *", "At 00:00 on January 1"),
        ("@annually", "0 0 1 1 *", "At 00:00 on January 1"),
    ],
)
def test_a_word_stands_for_five_fields(word: str, same: str, as_words: str) -> None:
    plan = parse(word, "Europe/Berlin")
    assert plan.text == word.strip().lower()
    assert plan.words == as_words
    assert firings(plan, NOW, 5) == firings(parse(same, "Europe/Berlin"), NOW, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30 2 * * *", "At 02:30 every day"),
        ("*/10 * * * *", "Every 10th minute of every hour"),
        ("15 30 2 * * MON-FRI", "At 02:30:15 on Monday through Friday"),
    ],
)
def test_an_expression_can_say_what_it_means(text: str, words: str) -> None:
    assert parse(text, "UTC").words == words


def test_a_plan_cannot_be_changed_and_is_the_same_as_another_of_its_text_and_zone() -> None:
    plan = parse("30  2 * * *", "Europe/Berlin")
    assert plan == parse("30 2 * * *", "Europe/Berlin")
    assert len({plan, parse("30 2 * * *", "Europe/Berlin"), parse("30 2 * * *", "UTC")}) == 2
    assert (plan.text, plan.zone) == ("30 2 * * *", "Europe/Berlin")
    with pytest.raises(FrozenInstanceError):
        plan.text = "0 0 * * *"  # type: ignore[misc]


# Rare firings, and the ends of time.


def test_a_leap_day_is_found_even_over_the_century_that_has_none() -> None:
    assert parse("0 0 29 2 *", "Europe/Berlin").after(utc("2096-03-01")) == utc("2104-02-28 23:00")
    assert parse("* * 29 2 *", "Europe/Berlin").after(utc("2096-03-01")) == utc("2104-02-28 23:00")


def test_the_longest_wait_of_all_is_not_too_long() -> None:
    plan = parse("0 0 29 2 */7", "UTC")  # a leap day and a Sunday
    assert plan.after(utc("2088-03-01")) == utc("2128-02-29")


@pytest.mark.parametrize("text", ["0 0 1 1 *", "* * * * *", "* * * * * *", "59 23 31 12 *"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_after_the_last_date_nothing_fires(text: str, zone: str) -> None:
    plan = parse(text, zone)
    assert plan.after(LAST_MOMENT) is None
    assert firings(plan, LAST_MOMENT, 3) == []
    assert between(plan, LAST_MOMENT, 2 * LAST_MOMENT, 3) == []


def test_before_1970_there_were_moments_too() -> None:
    assert parse("0 0 * * *", "UTC").after(-1) == 0
    assert parse("0 0 * * *", "UTC").after(-DAY * 1000 - 1) == -DAY * 1000
    assert parse("* * * * * *", "UTC").after(-1500) == -1000


# Whatever one asks.

# The changes of a zone are looked for while an example is drawn; on a slow machine this takes its time.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fields(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    step = st.integers(1, last - first + 1)
    spans = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    longer = st.lists(number, min_size=2, max_size=2, unique=True).map(lambda ends: f"{min(ends)}-{max(ends)}")
    terms = number.map(str) | spans | st.tuples(longer, step.map(str)).map("/".join)
    lists = st.lists(terms, min_size=1, max_size=3).map(",".join)
    return st.just("*") | step.map(lambda size: f"*/{size}") | lists


def often(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Mostly a star: else most expressions hardly ever fire."""
    return st.just("*") | st.just("*") | strategy


MINUTES = st.tuples(
    fields(0, 59), fields(0, 23) | fields(0, 3), often(fields(1, 31)), often(fields(1, 12)), often(fields(0, 7))
).map(" ".join)
EXPRESSIONS = MINUTES | st.tuples(fields(0, 59), MINUTES).map(" ".join)


@st.composite
def moments(draw: st.DrawFn, zone: str) -> int:
    """Any moment of more than a century, most often one near a change of the clocks."""
    near = [change for change, _ in changes(zone, 1935, 2040)]
    second = draw(st.integers(-(10**9), 4 * 10**9) | st.sampled_from([*near, 0]))
    return second * 1000 + draw(st.integers(-2 * DAY * 1000, 2 * DAY * 1000))


def made(text: str, zone: str) -> Cron:
    try:
        return parse(text, zone)
    except InvalidInput as refused:
        assume("never fires" not in refused.message)
        raise


@patient
@given(MINUTES, st.sampled_from(ZONES), st.data())
def test_any_expression_fires_where_brute_force_finds_it(text: str, zone: str, data: st.DataObject) -> None:
    plan = made(text, zone)
    change, shift = data.draw(st.sampled_from(changes(zone) or [(NOW // 1000, 0)]))
    around = 3 * HOUR + abs(shift)
    points = grid(zone, change - around, change + around, MINUTE)
    assert disagreements(plan, points, change, shift) == []


@patient
@given(EXPRESSIONS, st.sampled_from(ZONES + OLD_ZONES), st.data())
def test_a_firing_is_the_same_wherever_one_starts_to_ask(text: str, zone: str, data: st.DataObject) -> None:
    plan, moment = made(text, zone), data.draw(moments(zone))
    firing = plan.after(moment)
    assert firing is not None
    assert firing > moment
    for _ in range(5):
        between_them = data.draw(st.integers(max(moment, firing - 2 * DAY * 1000), firing - 1))
        assert plan.after(between_them) == firing
    assert plan.after(firing - 1) == firing


@patient
@given(EXPRESSIONS, st.sampled_from(ZONES + OLD_ZONES), st.data())
def test_firings_only_ever_go_forward_and_one_clock_sees_what_another_does(
    text: str, zone: str, data: st.DataObject
) -> None:
    plan, moment = made(text, zone), data.draw(moments(zone))
    found = firings(plan, moment, 8)
    assert len(found) == 8
    assert sorted(set(found)) == found
    until = data.draw(st.sampled_from(found)) + data.draw(st.sampled_from([-1, 0, 1]))
    assert between(plan, moment, until, 8) == [firing for firing in found if firing <= until]
    # A clock that looks in steps of its own sees the same.
    steps = sorted({moment, *data.draw(st.lists(st.integers(moment, found[-1]), max_size=5)), found[-1]})
    seen_in_steps = [firing for a, b in pairwise(steps) for firing in between(plan, a, b, 8)]
    assert seen_in_steps == found


@patient
@given(EXPRESSIONS, st.sampled_from(ZONES + OLD_ZONES), st.data())
def test_a_firing_is_a_match_on_the_wall_unless_the_clocks_have_just_changed(
    text: str, zone: str, data: st.DataObject
) -> None:
    firing = made(text, zone).after(data.draw(moments(zone)))
    assert firing is not None
    wall, before = on_the_wall(zone, firing // 1000), on_the_wall(zone, firing // 1000 - 1)
    assert firing % 1000 == 0
    assert Expression(text).matches(wall) or wall - before > timedelta(seconds=1)


@patient
@given(EXPRESSIONS)
def test_every_expression_has_words(text: str) -> None:
    assert made(text, "UTC").words


# Fixed intervals.


def test_an_interval_counts_from_its_anchor() -> None:
    plan = Every(anchor=NOW, interval=90_000)
    assert firings(plan, NOW, 3) == [NOW + 90_000, NOW + 180_000, NOW + 270_000]
    assert plan.after(NOW + 89_999) == NOW + 90_000
    assert plan.after(NOW + 90_000) == NOW + 180_000


def test_an_interval_does_not_fire_at_its_anchor_or_before() -> None:
    plan = Every(anchor=NOW, interval=90_000)
    for moment in (0, NOW - 1_000_000, NOW - 90_001, NOW - 90_000, NOW - 1):
        assert plan.after(moment) == NOW + 90_000


def test_between_ends_with_its_limit_and_includes_its_end_but_not_its_start() -> None:
    plan = Every(anchor=0, interval=10)
    assert between(plan, 10, 40, 100) == [20, 30, 40]
    assert between(plan, 10, 40, 2) == [20, 30]
    assert between(plan, 10, 39, 100) == [20, 30]
    assert between(plan, 10, 19, 100) == between(plan, 10, 40, 0) == between(plan, 40, 10, 5) == []
    assert firings(plan, 0, 0) == []


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_of_nothing_is_refused(interval: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        Every(anchor=0, interval=interval)
    assert refused.value.hint


@patient
@given(st.integers(-(10**13), 10**13), st.integers(1, 10**11), st.integers(-(10**13), 10**13))
def test_any_interval_fires_at_the_next_whole_number_of_them(anchor: int, interval: int, moment: int) -> None:
    firing = Every(anchor, interval).after(moment)
    count, rest = divmod(firing - anchor, interval)
    assert firing > moment
    assert rest == 0
    assert count >= 1
    assert count == 1 or firing - interval <= moment


# What is refused.


def refusal(text: str, zone: str = "UTC") -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refused:
        parse(text, zone)
    assert "\n" not in refused.value.message + refused.value.hint
    return refused.value.message, refused.value.hint


@pytest.mark.parametrize(
    ("text", "message", "takes"),
    [
        ("60 * * * * *", '"60" is not a second', "0-59"),
        ("61 * * * *", '"61" is not a minute', "0-59"),
        ("* 24 * * *", '"24" is not an hour', "0-23"),
        ("0 0 0 * *", '"0" is not a day of the month', "1-31, L"),
        ("0 0 32 * *", '"32" is not a day of the month', "1-31, L"),
        ("* * * 13 *", '"13" is not a month', "1-12 or JAN-DEC"),
        ("* * * sept *", '"sept" is not a month', "1-12 or JAN-DEC"),
        ("* * * * 8", '"8" is not a day of the week', "0-7"),
        ("* * * * FRI-MON", '"FRI-MON" is not a day of the week', "SUN-SAT"),
        ("* * * * mon#6", '"mon#6" is not a day of the week', "MON#1"),
        ("* * * * ?", '"?" is not a day of the week', "0-7"),
        ("*/0 * * * *", '"*/0" is not a minute', "*/60"),
        ("*/90 * * * *", '"*/90" is not a minute', "*/60"),
        ("0 1,*/25 * * *", '"1,*/25" is not an hour', "*/24"),
        ("5-5/10 * * * *", '"5-5/10" is not a minute', "0-59"),
        ("0 0-00/10 * * *", '"0-00/10" is not an hour', "0-23"),
        ("5-1 * * * *", '"5-1" is not a minute', "0-59"),
        (", * * * *", '"," is not a minute', "0-59"),
        ("-1 * * * *", '"-1" is not a minute', "0-59"),
        ("1e1 * * * *", '"1e1" is not a minute', "0-59"),
        ("² * * * *", '"²" is not a minute', "0-59"),
        ("* * * * \u017fun", '"\u017fun" is not a day of the week', "0-7"),
        ("\0 * * * *", '"\0" is not a minute', "0-59"),
        ("*/" + "9" * 5000 + " * * * *", '"*/' + "9" * 5000 + '" is not a minute', "*/60"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_what_it_takes(text: str, message: str, takes: str) -> None:
    said, hint = refusal(text)
    assert said == message
    assert takes in hint
    assert '"30 2 * * *"' in hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a cron expression is missing"),
        (" \t", "a cron expression is missing"),
        ("soon", '"soon" has 1 field, not five or six'),
        ("* * *  *", '"* * * *" has 4 fields, not five or six'),
        ("* * * * * * *", '"* * * * * * *" has 7 fields, not five or six'),
    ],
)
def test_too_few_or_too_many_fields_are_refused_with_an_example(text: str, message: str) -> None:
    said, hint = refusal(text)
    assert said == message
    assert '"30 2 * * *" is 02:30 every day' in hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("@dayly", 'there is no "@dayly"', 'did you mean "@daily"?'),
        ("@HOURLI", 'there is no "@hourli"', 'did you mean "@hourly"?'),
        ("@x", 'there is no "@x"', "known are: @hourly, @daily,"),
        ("@", 'there is no "@"', "known are: @hourly, @daily,"),
        ("@reboot", 'there is no "@reboot"', "a queue does not start or stop with a machine"),
        ("@every 5m", 'there is no "@every"', "--every 10m"),
        ("@daily 5", '"@daily 5" has something after "@daily"', 'write just "@daily"'),
    ],
)
def test_another_word_is_refused(text: str, message: str, hint: str) -> None:
    said, advice = refusal(text)
    assert said == message
    assert hint in advice


@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 31 2 *", "* * 31 2 */2", "0 0 */30 * MON#2", "0 0 31 FEB *"]
)
def test_what_can_never_fire_is_refused(text: str) -> None:
    message, hint = refusal(text, "Europe/Berlin")
    assert message == f'"{text}" never fires: there is no such day'
    assert "February" in hint


def test_what_fires_on_another_day_as_well_is_not_refused() -> None:
    assert seen("0 0 30 2 MON", "UTC", "2027-01-15", 1) == ["02-01 00:00 UTC"]


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("utc", "UTC"),
        ("right/Europe/Berlin", "Europe/Berlin"),
    ],
)
def test_a_mistyped_zone_is_refused_with_the_one_meant(zone: str, meant: str) -> None:
    assert refusal("0 0 * * *", zone) == (f'there is no time zone "{zone}"', f'did you mean "{meant}"?')


@pytest.mark.parametrize(
    "zone",
    [
        "../../etc/passwd", "/etc/localtime", "/usr/share/zoneinfo/Europe/Berlin", "Europe/../Europe/Berlin", ".",
        "a\0b", "\0", "\ud800", "Europe", "Europe/", "PST", "+02:00", "x" * 5000, "x/" * 5000, "tzdata.zi",
        "__init__.py", "localtime", "posixrules", "CET-1CEST,M3.5.0,M10.5.0/3", ":Europe/Berlin",
    ],
)  # fmt: skip
def test_what_is_no_zone_is_refused_politely(zone: str) -> None:
    message, hint = refusal("0 0 * * *", zone)
    assert message == f'there is no time zone "{zone}"'
    assert hint in ('write a name such as "Europe/Berlin", or "UTC"', 'did you mean "Europe/Berlin"?')


def test_no_zone_at_all_is_refused() -> None:
    assert refusal("0 0 * * *", "") == ("a time zone is missing", 'write a name such as "Europe/Berlin", or "UTC"')


@pytest.mark.parametrize("zone", ["posix/Europe/Berlin", "right/Europe/Berlin", "localtime", "posixrules"])
def test_a_zone_that_is_another_on_other_machines_is_none_even_if_it_is_here(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setattr(zoneinfo, "ZoneInfo", lambda name: ZoneInfo("Europe/Berlin"))
    assert cron.find_zone(zone) is None
    assert cron.find_zone("Europe/Berlin")


def test_utc_works_without_any_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", none)
    assert parse("@hourly", "UTC").after(NOW) == NOW + HOUR * 1000


@patient
@given(
    st.text()
    | st.text("0123456789*/-,#LW @")
    | st.lists(st.text("0123456789*/-,#LW", min_size=1), min_size=5, max_size=6).map(" ".join)
)
@example("1/1/1 * * * *")
@example("0 0 L/2 * *")
@example("0 0 LW,1 * 5L,MON#2")
@example("0 0 * * L")
@example("0 0 L-3 * *")
@example("0 0 * * 1#2/3")
def test_any_text_is_an_expression_that_fires_or_is_refused(text: str) -> None:
    try:
        plan = parse(text, "Europe/Berlin")
    except InvalidInput:
        return
    assert plan.after(NOW)
    assert plan.words
    assert parse(plan.text, plan.zone) == plan


@patient
@given(st.text() | st.text("./abEurope\0", max_size=20))
def test_any_text_is_a_zone_or_is_refused(zone: str) -> None:
    try:
        assert parse("@daily", zone).after(NOW)
    except InvalidInput:
        pass
