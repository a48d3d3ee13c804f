"""Where a list goes on: a number in an address of the dashboard, and the same in disguise in the API."""

from __future__ import annotations

import base64

from queuectl.errors import InvalidInput

MOST_DIGITS = 18  # the databases count to 2**63


def place(text: str) -> int:
    """The place that a cursor names."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise InvalidInput("this cursor is none of ours", "begin with the first page")
    return int(text)


def sealed(place: int) -> str:
    """For programs, which are not to count with it."""
    return base64.urlsafe_b64encode(b"%d" % place).decode().rstrip("=")


def unsealed(text: str) -> int:
    try:
        digits = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        digits = ""
    found = place(digits)
    return found if sealed(found) == text else place("")  # there is one way to write it
