"""A storm of commands: random clients use every command that changes a queue, beside workers that are killed, stopped
and continued. Afterwards everything is let come to rest, and every change that was made is checked."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from queuectl import Queue
from queuectl.errors import Conflict, NotFound, StoreUnavailable
from queuectl.jobs import job_spec, lifecycle
from queuectl.jobs.model import Claim, Report
from queuectl.store import Store, open_store
from tests.chaos import ledger, recorder, rest
from tests.chaos.clients import KEYS, NAMES, QUEUES, SCRIPT, Client, Dice, Known, Plan, Shell
from tests.chaos.conftest import send
from tests.chaos.invariants import Replay
from tests.chaos.ledger import Verdict
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, Cli, processes_with

POOL = Plan(("worker", "start", "--count", "2", "--concurrency", "2"))
TOKEN = "a token for the storm"[::-1].replace(" ", "-")
MOST_WORKERS = 6
PATIENCE = 8.0  # seconds for which commands wait for a lock; a stop that takes longer may cost others theirs

UNSETTLED = """
SELECT id, state FROM jobs
 WHERE state = 'processing'
    OR (state IN ('pending', 'failed') AND run_at <= :now
        AND NOT EXISTS (SELECT 1 FROM queues WHERE name = queue AND paused))
"""


class CommandStorm:
    """One storm on one queue. `stops`: for how many seconds processes are stopped. `crowd`: clients of each kind."""

    def __init__(self, q: Cli, seed: int, stops: tuple[float, float] = (0.1, 0.5), crowd: int = 1) -> None:
        self.q = q
        self.seed = seed
        self.known = Known(unavailable=stops[1] > PATIENCE)
        self.kills = self.stopped = self.changes = 0
        self._stops = stops
        self._crowd = crowd
        self._random = random.Random(f"{seed} fate")
        self._ledger = q.folder / "ledger"
        self._timers: list[threading.Thread] = []
        self._calm = threading.Lock()  # while it is held, nobody is killed
        self._reviving = threading.Lock()
        self._end = 0.0
        q.env |= {"LEDGER": str(self._ledger), "QUEUECTL_TOKEN": TOKEN}
        (q.folder / "job.sh").write_text(SCRIPT)
        self.store = self._open()
        recorder.install(self.store)
        self._shell = Shell(q, self.known)

    def rage(self, seconds: float) -> Verdict:
        """Let the clients do what they like for so long; then judge."""
        with serving(self.q) as server:
            self._server = server
            self._begin()
            self._end = time.monotonic() + seconds
            clients = (self._typist, self._impatient, self._visitor, self._programmer, self._straggler)
            crowd = [partial(client, f"{number}") for client in clients for number in range(self._crowd)]
            self._run(*crowd, self._operator, self._fate, self._watchman)
            self._come_to_rest()
        self.known.problems += [f"serve: {line}" for line in rest.complaints(server.printed)]
        return self._judge()

    def lull(self) -> Verdict:
        """The same without a storm: only what every storm begins with."""
        self._begin()
        self._come_to_rest()
        return self._judge()

    def _begin(self) -> None:
        """Jobs that must wait for each other, and a worker that is taken for dead while it runs one of them."""
        run = {"command": f". {self.q.folder}/job.sh", "backoff_base": 0}
        limited = {**run, "queue": "slow", "env": {"KIND": "slow"}}
        keyed = {**run, "queue": "mail", "key": KEYS[0]}
        parents = [
            {**run, "id": f"parent-{kind}", "env": {"KIND": kind}, "max_retries": 1} for kind in ("ok", "fail")
        ]
        ids = [{"id": parent["id"], "condition": "any"} for parent in parents]
        children = [{**run, "depends_on": ids}, {**run, "depends_on": ["parent-fail"]}]
        _hasten(self.store)
        self.store.change_queue("slow", at_once=1)
        self.store.hooks.add(NAMES[0], ["completed", "dead"], command="true", queue="mail")
        jobs = [limited] * 3 + [keyed] * 4 + parents + children
        self.known.store(self.store.enqueue([job_spec.from_fields(fields) for fields in jobs]))
        straggler = Straggler(self.q.url)
        straggler.claim()
        self._shell.real(POOL)
        straggler.settle()
        straggler.close()

    def _open(self) -> Store:
        """A store of its own for each thread."""
        store = open_store(self.q.url)
        if store.engine.leased:  # else it would look for the workers in the home of whoever runs the tests
            store.engine.run_dir = f"{self.q.folder}/.local/share/queuectl/{store.engine.identity}/run"
        return store

    # -- clients -----------------------------------------------------------------------------------------

    def _run(self, *roles: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._careful, args=(role,)) for role in roles]
        for thread in threads:
            thread.start()
        for thread in [*threads, *self._timers]:
            thread.join()

    def _careful(self, role: Callable[[], None]) -> None:
        try:
            role()
        except Exception as error:
            self.known.problems.append(f"the storm itself broke: {role}: {error!r}")
            self._end = 0.0
            raise

    def _raging(self) -> bool:
        return time.monotonic() < self._end

    def _dice(self, role: str) -> Dice:
        return Dice(f"{self.seed} {role}", self.known, str(self.q.folder), "://" in self.q.url)

    def _typist(self, number: str) -> None:
        """One command after the other."""
        dice = self._dice(f"typist {number}")
        while self._raging():
            self._shell.warm(dice.plan())

    def _impatient(self, number: str) -> None:
        """Commands of which some are stopped or killed at any moment."""
        dice = self._dice(f"impatient {number}")
        pick = dice.random
        while self._raging():
            plan, how, pause = dice.plan(), pick.random(), pick.uniform(0, 0.3)
            if how < 0.3:
                self._shell.real(plan, pause, kill=True)
            elif how < 0.6:
                self._shell.real(plan, pause, stop=pick.uniform(*self._stops))
            else:
                self._shell.real(plan)

    def _visitor(self, number: str) -> None:
        """The HTTP API."""
        dice, client = self._dice(f"visitor {number}"), Client(TOKEN, self.known)
        while self._raging():
            if not client.ask(self._server.port, *dice.request()):
                with self._reviving:
                    self._server.revive()
            time.sleep(dice.random.uniform(0, 0.05))

    def _programmer(self, number: str) -> None:
        """The Python API."""
        dice = self._dice(f"programmer {number}")
        with Queue(self.q.url) as queue:
            while self._raging():
                try:
                    match dice.random.randrange(6):
                        case 0:
                            queue.cancel(*dice.jobs())
                        case 1:
                            queue.retry(*dice.jobs(1))
                        case _:
                            jobs = queue.enqueue_many(dice.family(dice.random.randint(1, 6)))
                            self.known.store([job.id for job in jobs])
                except (NotFound, Conflict):
                    pass
                except StoreUnavailable as error:
                    if not self.known.unavailable:
                        self.known.problems.append(f"the Python API: {error}")
                time.sleep(dice.random.uniform(0, 0.1))

    def _straggler(self, number: str) -> None:
        """Workers that others take for dead, and that settle all the same."""
        dice, straggler = self._dice(f"straggler {number}"), Straggler(self.q.url)
        try:
            while self._raging():
                straggler.claim()
                time.sleep(dice.random.uniform(0.1, 1))
                straggler.settle()
        except StoreUnavailable as error:
            if not self.known.unavailable:
                self.known.problems.append(f"the straggler: {error}")
        finally:
            straggler.close()

    # -- what happens to processes -----------------------------------------------------------------------

    def _operator(self) -> None:
        """Starts and stops workers; and once stops them all for what is refused while they run."""
        dice, store = self._dice("operator"), self._open()
        maintained = self._end - 0.7 * (self._end - time.monotonic())
        while self._raging():
            _hasten(store)
            if time.monotonic() >= maintained:
                maintained = self._end
                with self._calm:  # else this would hardly ever succeed
                    self._maintain()
            workers = [worker for worker in store.views.workers() if worker.alive]
            if len(workers) < dice.random.randint(1, MOST_WORKERS):
                self._shell.warm(POOL._replace(allowed=(0, 1)))  # they may be killed before they are ready
            elif dice.random.random() < 0.3:
                how = dice.random.choice(((), ("--now",), ("--timeout", "0.2s")))
                self._shell.warm(Plan(("worker", "stop", *how)))
            time.sleep(dice.random.uniform(0, 0.5))
        store.close()

    def _maintain(self) -> None:
        self._shell.warm(POOL)  # they put back what the dead have left
        self._shell.warm(Plan(("worker", "stop", "--now")))
        copy = f"{self.q.folder}/copy.db"
        if self._shell.warm(Plan(("copy", "--to", copy), (0, 4))) == 0:
            self.known.copies.append(copy)
        self._shell.warm(Plan(("reset", "--yes"), (0, 4)))

    def _fate(self) -> None:
        """Kills, stops and continues, without regard to persons."""
        pick, store = self._random, self._open()
        while self._raging():
            time.sleep(pick.uniform(0.02, 0.3))
            with self._calm:
                workers = [worker for worker in store.views.workers() if worker.alive]
                if not workers:
                    continue
                victim, dice = pick.choice(workers), pick.random()
                if dice < 0.05:
                    self._kill(self._server.process.pid)
                elif dice < 0.40:
                    self._kill(victim.pid)
                elif dice < 0.50:
                    self._kill(victim.manager_pid)
                elif dice < 0.60:
                    self._kill(*{worker.manager_pid for worker in workers} | {worker.pid for worker in workers})
                else:
                    pids = (victim.pid, victim.pid, victim.manager_pid, self._server.process.pid)
                    self._stop(pick.choice(pids), pick.uniform(*self._stops))
        store.close()

    def _watchman(self) -> None:
        """Looks all the time; each look sees one moment."""
        store = self._open()
        while self._raging():
            if problems := rest.wrong_rows(store):
                self.known.problems += [f"in the storm: {what}" for what in problems]
                break
            time.sleep(0.3)
        store.close()

    def _kill(self, *pids: int) -> None:
        for pid in pids:
            self.kills += 1
            send(pid, signal.SIGKILL)

    def _stop(self, pid: int, seconds: float) -> None:
        """Stop a process, and continue it later; the storm goes on meanwhile."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return

        def pause() -> None:
            try:
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
                time.sleep(seconds)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)

        self.stopped += 1
        self._timers.append(threading.Thread(target=pause))
        self._timers[-1].start()

    # -- afterwards --------------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """Nothing new is enqueued; what is due runs. Then the paused queues, too."""
        _hasten(self.store)
        for schedule, _ in self.store.schedules.all():
            self._shell.warm(Plan(("schedule", "pause", schedule.name)))
        rest.make_old(self.store.engine.run_dir)
        self._let_daemons_end()
        self._shell.warm(POOL)
        if self._settle():
            for queue in QUEUES:
                self._shell.warm(Plan(("queue", "resume", queue), (0, 3)))
            self._settle()
        self._let_daemons_end()
        self._shell.warm(Plan(("worker", "stop", "--timeout", "20s")))

    def _let_daemons_end(self) -> None:
        """What completed jobs have left on purpose keeps the control groups of their workers."""
        ours = f"HOME={self.q.folder}"
        eventually(lambda: not {*processes_with(ours)} & {*processes_with("KIND=daemon")}, "daemons to end")

    def _settle(self) -> bool:
        """Wait until nothing is due, and all that waits has a reason. Is all well?

        While new runs start, the machine is only slow; if none has started for a minute, something is stuck."""
        started = -1
        while True:
            try:
                eventually(self._at_rest, "rest", deadline=DEADLINE)
                problems = rest.wrong_rows(self.store)
                break
            except AssertionError:
                before, started = started, self._started()
                if started == before:
                    problems = [f"does not come to rest: {self._unsettled()[:5]}", *rest.without_reason(self.store)]
                    break
        self.known.problems += problems
        return not problems

    def _started(self) -> int:
        with self.store.engine.read() as tx:
            return int(tx.rows("SELECT COALESCE(sum(run), 0) FROM jobs")[0][0])

    def _at_rest(self) -> bool:
        """Or never to be."""
        if rest.wrong_rows(self.store):
            return True
        return not self._unsettled() and not rest.without_reason(self.store)

    def _unsettled(self) -> list[tuple[str, str]]:
        with self.store.engine.read() as tx:
            return [(id, state) for id, state in tx.rows(UNSETTLED, {"now": tx.now})]

    def _judge(self) -> Verdict:
        known, store = self.known, self.store
        changes = recorder.changes(store)
        replay = Replay(known.resets).feed(changes)
        self.changes = len(changes)
        told = ledger.read(self._ledger)
        verdict = Verdict(jobs=len(replay.inserted), runs=told.runs, problems=known.problems)
        verdict.problems += replay.problems + told.problems
        ended = (told.left & replay.completed) - told.stayed
        verdict.problems += [f"{id}: what run {run} left behind on purpose was ended" for id, run in sorted(ended)]
        broken_off = {(id, run) for id, run in replay.completed & told.started if run not in told.ended[id]}
        verdict.problems += [f"{id}: completed by run {run}, which never came to its end" for id, run in broken_off]
        verdict.problems += rest.damaged(store) + rest.wrong_rows(store) + rest.wrong_history(store, replay)
        verdict.problems += rest.lost(known.acknowledged, replay)
        verdict.problems += rest.left_workers(store)
        if not any(command.endswith(" -9") for command in known.done):  # else some may have been killed before
            verdict.problems += rest.leaked_logs(self.q.logs, replay)
        verdict.problems += rest.stray_processes(store.engine.identity, replay)
        verdict.problems += rest.leaked_files(store.engine.run_dir, replay.workers)
        said = (self.q.logs / "workers.log").read_text(errors="replace")
        verdict.problems += [f"workers.log: {line}" for line in rest.complaints(said)]
        for path in (*known.copies, *known.backups):
            copy = open_store(path)
            verdict.problems += [f"{Path(path).name}: {what}" for what in rest.damaged(copy) + rest.wrong_rows(copy)]
            copy.close()
        store.close()
        return verdict


def _hasten(store: Store) -> None:
    """Let what does not go when it is asked to be killed soon. A reset forgets that."""
    store.set_config("kill_grace", "0.1")


class Straggler:
    """A worker without a process: others see that it is dead. It settles its runs nevertheless, as one does that was
    stopped for longer than its lease."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        self._id = ""
        self._claims: list[Claim] = []

    def claim(self) -> None:
        self._id = f"straggler{job_spec.new_id()}"
        self._store.register(self._id, 0, "elsewhere", 0, (), 1)
        self._claims = self._store.tick(self._id, slots=1).claims

    def settle(self) -> None:
        done = [(claim, lifecycle.COMPLETED, Report(duration_ms=1)) for claim in self._claims]
        self._store.tick(self._id, done)

    def close(self) -> None:
        self._store.close()


class Serving:
    """`queuectl serve`, in a process of its own."""

    def __init__(self, q: Cli) -> None:
        self._q = q
        self.printed = ""
        self._start(0)

    def _start(self, port: int) -> None:
        self.process = subprocess.Popen(
            [QUEUECTL, "serve", "--port", str(port)],
            env=self._q.env,
            cwd=self._q.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        while "Ctrl-C" not in (line := self.process.stdout.readline()) and line:  # none if it was killed by now
            self.printed += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.printed += self.process.communicate(timeout=DEADLINE)[0]
        return self.process.returncode

    def revive(self) -> None:
        """Start another on the same port, if it was killed."""
        if self.process.poll() is not None:
            assert self.process.returncode == -signal.SIGKILL, self.printed
            self.printed += self.process.communicate()[0]
            self._start(self.port)


@contextmanager
def serving(q: Cli) -> Iterator[Serving]:
    server = Serving(q)
    try:
        yield server
    finally:
        server.end()
