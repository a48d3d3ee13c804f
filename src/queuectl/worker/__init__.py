"""The part that runs jobs: a manager owns processes, a worker owns a connection and some slots."""
