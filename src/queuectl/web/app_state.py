"""What all requests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuectl.web.auth import Access
from queuectl.web.store_pool import Stores

if TYPE_CHECKING:
    from queuectl.web.sse import Live
    from queuectl.web.streams import StreamLimits


class Desk(NamedTuple):
    stores: Stores
    access: Access
    live: Live
    streams: StreamLimits
    cookie: str
    """Named after the port: browsers do not keep the cookies of two ports apart."""
    where_is_the_token: str
    """For people who have lost it."""
