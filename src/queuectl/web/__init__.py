"""The dashboard, the HTTP API and the metrics: `queuectl serve`."""
