"""One `Queue` in several threads, and in a child process after a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from queuectl import Queue
from queuectl.errors import InvalidInput
from queuectl.store import Store
from tests.conftest import DEADLINE, eventually

THREADS, BATCHES = 6, 12


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


def test_threads_share_a_queue(queue: Queue, store: Store) -> None:
    def work(thread: int) -> list[str]:
        ids = []
        for batch in range(BATCHES):
            wanted = [f"job-{thread}-{batch}-{number}" for number in range(3)]
            jobs = queue.enqueue_many([{"command": "true", "id": id} for id in wanted])
            assert [job.id for job in jobs] == wanted
            queue.cancel(wanted[0])
            assert queue.get(wanted[1]).state == "pending"
            assert queue.stats()["cancelled"] > 0
            ids += wanted
        return ids

    with ThreadPoolExecutor(THREADS) as threads:
        ids = [id for found in threads.map(work, range(THREADS)) for id in found]
    states = store.views.states(ids)
    assert len(states) == len(ids) == THREADS * BATCHES * 3
    assert sum(state == "cancelled" for state in states.values()) == THREADS * BATCHES


def test_a_thread_that_waits_keeps_no_other_waiting(queue: Queue) -> None:
    job = queue.enqueue("true")
    with ThreadPoolExecutor(4) as threads:
        waits = [threads.submit(queue.wait, job.id, timeout=DEADLINE) for _ in range(4)]
        eventually(lambda: all(wait.running() for wait in waits))
        for _ in range(20):
            queue.enqueue("true")
        assert not any(wait.done() for wait in waits)
        queue.cancel(job.id)
        assert [found.state for wait in waits for found in wait.result()] == ["cancelled"] * 4


def test_a_thread_that_closes_a_queue_waits_for_the_calls_of_others(url: str, store: Store) -> None:
    stored: list[str] = []
    closed = threading.Event()

    def work() -> None:
        while True:
            try:
                stored.append(shared.enqueue("true").id)
            except InvalidInput:
                assert closed.wait(DEADLINE)
                return

    shared = Queue(url)
    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(work) for _ in range(2)]
        eventually(lambda: len(stored) > 5)
        shared.close()
        closed.set()
        for each in works:
            each.result()
    assert len(store.views.states(stored)) == len(stored)
    for use in (shared.stats, lambda: shared.enqueue("true"), lambda: shared.wait(stored[0])):
        with pytest.raises(InvalidInput, match="closed"):
            use()
    shared.close()


FORK = """
import os, sys, threading
from queuectl import Queue

def connection():
    engine = queue._there._shared._connection
    return engine._db.info.backend_pid if engine.leased else engine._db

def locks():  # of this process on the database
    file = os.stat(queue._there._shared._connection.path).st_ino
    found = (line.split() for line in open("/proc/locks"))
    return sum(words[4] == str(os.getpid()) and words[5].endswith(f":{file}") for words in found if words[1] != "->")

def work():
    while not done.is_set():
        busy.append(queue.enqueue("true").id)

queue, done, busy = Queue(sys.argv[1]), threading.Event(), []
first = connection()
thread = threading.Thread(target=work, daemon=True)
thread.start()
for number in range(8):
    child = os.fork()
    if not child:
        if number % 4:
            assert queue.enqueue("true", id=f"child-{number}").state == "pending"
            assert connection() != first
            assert queue._there._shared._connection.leased or locks() > 0
        if number % 2:
            queue.close()
        sys.exit() if number % 3 else os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    queue.enqueue("true", id=f"parent-{number}")
    assert connection() == first, "the parent's own connection is as it was"
done.set()
thread.join()
assert {job.id for job in queue.jobs(limit=-1)} == {
    *busy, *(f"parent-{n}" for n in range(8)), *(f"child-{n}" for n in range(8) if n % 4)}
queue.close()
"""


def test_a_child_process_has_a_connection_of_its_own(url: str, store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, url], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
