"""The operating system and Python: files, processes, times, wake-ups. Knows nothing of jobs."""
