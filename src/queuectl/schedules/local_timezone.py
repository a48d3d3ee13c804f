"""The time zone of this machine."""

from __future__ import annotations

import os

from queuectl.schedules.cron import find_zone

LOCALTIME = "/etc/localtime"
TIMEZONE = "/etc/timezone"


def local_zone() -> str:
    """Name the zone that times without one are meant in; UTC if this machine does not say."""
    variable = os.environ.get("TZ")
    if variable == "":  # for the C library this is UTC
        return "UTC"
    # The link before its end: where Oslo is a link to Berlin, Oslo is what somebody has chosen.
    places = (variable or "", _link(LOCALTIME), os.path.realpath(LOCALTIME), _first_line(TIMEZONE))
    return next((name for text in places if (name := _named(text))), "UTC")


def _named(text: str) -> str | None:
    """The zone in `Europe/Berlin`, `:Europe/Berlin` or `/usr/share/zoneinfo/Europe/Berlin`, if there is one."""
    name = text.removeprefix(":").rpartition("/zoneinfo/")[2]
    return name if find_zone(name) else None


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
