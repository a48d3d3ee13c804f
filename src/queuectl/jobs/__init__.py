"""What a job is and the rules about it. No I/O but log files."""
