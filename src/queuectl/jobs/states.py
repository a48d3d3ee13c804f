"""Which states mean what. Plain words: the hot path of `enqueue` must not load enum for them."""

from __future__ import annotations

WAITING = ("pending", "failed")  # will run when they are due
FINISHED = ("completed", "dead", "cancelled")
PRUNABLE = ("completed", "cancelled")  # dead jobs wait for somebody to look at them
