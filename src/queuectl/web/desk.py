"""What all requests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuectl.web.access import Access
from queuectl.web.stores import Stores

if TYPE_CHECKING:
    from queuectl.web.live import Live


class Desk(NamedTuple):
    stores: Stores
    access: Access
    live: Live
    cookie: str
    """Named after the port: browsers do not keep the cookies of two ports apart."""
    where_is_the_token: str
    """For people who have lost it."""
