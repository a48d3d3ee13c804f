"""Statistics of runs and their Prometheus form."""
