"""The Python API, on a database or over HTTP."""
