"""Rules of queues: limits, and which queue a worker takes jobs from."""
