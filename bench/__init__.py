"""How fast, against whom: `scripts/bench`."""
