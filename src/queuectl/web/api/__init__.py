"""The HTTP API."""

from __future__ import annotations

from queuectl.web.routing import Door

ROUTES: tuple[Door, ...] = ()
