"""Moments and durations as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuectl.errors import InvalidInput
from queuectl.system.times import LONGEST_DELAY, exactly, iso, local, now_ms, parse_duration, parse_moment, span

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z, a Friday
CET = "CET-1CEST,M3.5.0,M10.5.0/3"
HOUR, DAY = 3600, 86400

InZone = Callable[[str], None]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172800),
        ("1w", 604800),
        (" 5M ", 300),
        (".5s", 0.5),
    ],
)
def test_a_duration_is_read_as_it_is_meant(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "s", "5x", "-5", "+5", "5 m m", "1.2.3s", ".", "nan", "inf", "1e5", "0x10", "1_000", "\u0663", "²",
        "\uff15", "5\0", "1h-30m", "9" * 400, "101w years", f"{LONGEST_DELAY + 1}",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(text)
    assert refused.value.hint


@settings(deadline=None)
@given(st.text() | st.text("0123456789.smhdw- "))
def test_any_text_is_a_duration_or_is_refused(text: str) -> None:
    try:
        assert 0 <= parse_duration(text) <= LONGEST_DELAY
    except InvalidInput:
        pass


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("now", 0),
        ("90", 90),
        ("90s", 90),
        ("1h30m", 5400),
        ("in 10m", 600),
        ("In 1h 30m", 5400),
        ("2027-01-15T08:00:00Z", 0),
        ("2027-01-15T08:00:00.250Z", 0.25),
        ("2027-01-15T10:00:00+02:00", 0),
        ("20270115T080000Z", 0),
    ],
)
def test_a_delay_and_a_moment_with_its_zone_mean_the_same_everywhere(
    in_zone: InZone, text: str, after: float
) -> None:
    for zone in ("UTC", CET, "NZST-12"):
        in_zone(zone)
        assert parse_moment(text, NOW) == NOW + round(after * 1000)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("09:30", HOUR / 2),
        ("9:30", HOUR / 2),
        ("09:30:15", HOUR / 2 + 15),
        ("08:59", DAY - 60),  # already past today
        ("09:00", DAY),  # this very minute
        ("today 8:00", -HOUR),
        ("tomorrow 9:00", DAY),
        ("Tomorrow 09:00", DAY),
        ("2027-01-15 10:00", HOUR),
        ("2027-01-15T10:00", HOUR),
        ("2027-01-16", 15 * HOUR),
        (" 2027-01-15 10:00 ", HOUR),
    ],
)
def test_a_time_without_a_zone_is_local(in_zone: InZone, text: str, after: float) -> None:
    in_zone(CET)
    assert parse_moment(text, NOW) == NOW + round(after * 1000)


def test_summer_and_winter_each_have_their_own_offset(in_zone: InZone) -> None:
    in_zone(CET)
    assert iso(parse_moment("2027-01-16 12:00", NOW)) == "2027-01-16T11:00:00.000Z"
    assert iso(parse_moment("2027-07-16 12:00", NOW)) == "2027-07-16T10:00:00.000Z"


def test_tomorrow_is_a_day_on_the_wall_even_if_the_clocks_change(in_zone: InZone) -> None:
    in_zone(CET)
    saturday = parse_moment("2027-03-27 09:00", NOW)
    assert parse_moment("tomorrow 9:00", saturday) == saturday + 23 * HOUR * 1000


@pytest.mark.parametrize("text", ["2027-03-28 02:30", "2027-10-31 02:30"])
def test_an_hour_that_is_skipped_or_comes_twice_is_still_a_moment(in_zone: InZone, text: str) -> None:
    in_zone(CET)
    assert parse_moment(text, NOW) > NOW


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "soon", "24:00", "25:00", "9:60", "9:00:60", "tomorrow", "today", "tomorrow noon", "yesterday 9:00",
        "09:00 tomorrow", "2027-02-30", "2027-13-01", "2027-01-15 25:00", "2027-1-5", "-5", "in -5m", "in", "in soon",
        "5x", "1e5", "inf", "nan", "\u0663", "²", "\0", "\ud800", "9" * 5000 + ":00", "9999999999w",
        "2027-01-15T08:00:00+99:00", ":", "9:", ":30",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_moment(text, NOW)
    assert refused.value.hint


@pytest.mark.parametrize("text", ["1:2:3:4", "1_0:00", "+9:00", "\uff19:00"])
def test_what_only_resembles_a_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_moment(text, NOW)


@settings(deadline=None)
@given(st.text() | st.text("0123456789:-+TZ. ") | st.datetimes().map(str))
@example("9999-12-31T23:59:59-23:59")
@example("0001-01-01T00:00:00+23:59")
@example("0001-01-01")
@example("9999-12-31 23:59")
def test_any_text_is_a_moment_that_can_be_stored_and_shown_or_is_refused(text: str) -> None:
    try:
        moment = parse_moment(text, NOW)
    except InvalidInput:
        return
    assert -(2**63) <= moment < 2**63
    assert iso(moment)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW + 7, "2027-01-15T08:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_iso_has_milliseconds_and_ends_in_z(moment: int | None, text: str | None) -> None:
    assert iso(moment) == text


def test_iso_writes_an_early_year_with_four_digits_too() -> None:
    assert iso(parse_moment("0385-07-25T07:06:40Z", NOW)) == "0385-07-25T07:06:40.000Z"


@settings(deadline=None)
@given(st.integers(0, 253_402_300_799_999))
def test_iso_is_read_back_as_the_same_moment(moment: int) -> None:
    assert parse_moment(iso(moment) or "", NOW) == moment


def test_people_see_the_moment_with_its_zone(in_zone: InZone) -> None:
    in_zone(CET)
    assert local(NOW) == "2027-01-15 09:00:00 CET"
    assert local(parse_moment("2027-07-16 12:00", NOW)) == "2027-07-16 12:00:00 CEST"


def test_now_is_in_milliseconds() -> None:
    assert now_ms() > NOW - 10 * 365 * DAY * 1000
    assert now_ms() < NOW + 100 * 365 * DAY * 1000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.85, "850ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (4.2, "4.2s"),
        (10, "10s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (60, "1m"),
        (200, "3m 20s"),
        (3599.6, "1h"),
        (7500, "2h 5m"),
        (7501, "2h 5m"),
        (86400, "1d"),
        (273600, "3d 4h"),
    ],
)
def test_a_span_is_short_enough_for_a_table(seconds: float, text: str) -> None:
    assert span(seconds) == text


@settings(deadline=None)
@given(st.floats(0, 1e10))
def test_every_span_is_short(seconds: float) -> None:
    assert 2 <= len(span(seconds)) <= 12


@settings(deadline=None)
@given(st.integers(1, LONGEST_DELAY * 1000))
@example(90_061_000)
@example(5_400_000)
def test_what_stands_in_a_field_is_read_back_as_the_same(milliseconds: int) -> None:
    assert round(parse_duration(exactly(milliseconds)) * 1000) == milliseconds


def test_what_stands_in_a_field_is_short_if_it_can_be() -> None:
    assert exactly(5_400_000) == "1h 30m"
