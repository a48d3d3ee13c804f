"""Random commands: every one that changes a queue, with the exit codes that the specification allows it.

`Dice` makes the commands, from a seed and from what the storm knows of the queue. `Shell` runs them as a user would,
`Client` asks the HTTP API for the same. What a command may answer depends on what others do at the same moment: a job
that was there may be gone (3), may have finished or may be held (4). Never: a traceback, or an exit code that is not
in the list.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from queuectl.system.times import now_ms
from tests.chaos.rest import complaints
from tests.conftest import DEADLINE
from tests.e2e.conftest import QUEUECTL, Cli

QUEUES = ("default", "mail", "build", "slow")
KEYS = ("k1", "k2", "k3")
UNIQUE = ("u1", "u2", "u3", "u4")
BATCHES = ("b1", "b2", "b3")
NAMES = ("n1", "n2")  # of schedules and hooks
SETTINGS = {"max_retries": (1, 2, 3), "backoff_base": (0, 0.2), "crash_limit": (2, 5), "backoff_jitter": (0, 1)}
DEAD_AND_GONE = (0, 3, 4)

# What a job does: S and E are its start and end in the ledger, B a sign that it lives. `stray` beats from another
# session; `flee` daemonises and fails in the same moment; `daemon` leaves a process behind on purpose (L), which says
# D before it ends.
SCRIPT = """
say() { echo "$1 $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"; }
say S
case "$KIND" in
  fail) say E; exit 1 ;;
  later) say E; exit 75 ;;
  killed) kill -9 $$ ;;
  hang) sleep 1000 ;;
  slow) sleep 0.1; say B; sleep 0.2 ;;
  noisy) seq 1 3000 ;;
  result) echo '{"progress": 50, "message": "half"}' > "$QUEUECTL_RESULT" ;;
  stray) ( setsid sh -c 'for i in 1 2 3; do
      sleep 0.02
      echo "B $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"
    done' & )
    sleep 0.05 ;;
  flee) ( setsid sh -c '(while :; do sleep 0.02; echo "B $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"; done) &
      exit' & )
    exit 1 ;;
  daemon) say L; ( setsid sh -c 'sleep 0.4
      echo "D $QUEUECTL_JOB_ID ${QUEUECTL_RUN##*:}" >> "$LEDGER"' > /dev/null 2>&1 & ) ;;
esac
say E
"""
KINDS = {
    "ok": 8, "fail": 3, "later": 1, "killed": 1, "hang": 1, "slow": 3, "noisy": 1, "result": 1, "stray": 2,
    "flee": 2, "daemon": 1,
}  # fmt: skip
WISHES = {"key": 0.3, "unique": 0.1, "batch": 0.2, "delay": 0.1, "notify": 0.05, "after": 0.25}


class Plan(NamedTuple):
    """A command, and what it may answer."""

    args: tuple[str, ...]
    allowed: tuple[int, ...] = (0,)
    stdin: str = ""


@dataclass
class Known:
    """What the storm knows of the queue; shared by its threads."""

    acknowledged: list[str] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)  # by command and exit code
    answers: dict[str, list[str]] = field(default_factory=dict)  # by idempotency key
    unavailable: bool = False  # may a command find the database locked for too long? Only where stops take that long
    lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, ids: list[str]) -> None:
        with self.lock:
            self.acknowledged += ids

    def answer(self, key: str, ids: list[str]) -> None:
        """A request that names itself must be answered with the same jobs each time; some may be deleted by then."""
        with self.lock:
            before = self.answers.setdefault(key, ids)
            if not {*ids} <= {*before} and not self.resets:  # which forget the keys
                self.problems.append(f"asked again with the key {key}: {ids} instead of {before}")

    def judge(self, command: str, code: int, allowed: tuple[int, ...], text: str) -> None:
        """Count what a command answered, and complain if it should not have."""
        with self.lock:
            self.done[f"{command} {code}"] = self.done.get(f"{command} {code}", 0) + 1
            if code not in allowed and not (self.unavailable and code in (5, 124, 503)):
                self.problems.append(f"{command}: answered {code}: {text[-300:]}")
            self.problems += [f"{command}: {line}" for line in complaints(text)]


class Dice:
    """Random commands, from one seed."""

    def __init__(self, seed: object, known: Known, folder: str, leased: bool) -> None:
        self.random = random.Random(str(seed))
        self._known = known
        self._folder = folder
        self._leased = leased
        self._number = 0

    def jobs(self, most: int = 3) -> list[str]:
        """Some ids, of the newer ones rather; now and then one that never was."""
        pick = self.random
        with self._known.lock:
            newest = self._known.acknowledged[-60:]
        some = pick.sample(newest, min(len(newest), pick.randint(1, most)))
        return some if some and pick.random() < 0.97 else ["nobody"]

    def job(self, **more: Any) -> dict[str, Any]:
        """The fields of a new job."""
        pick = self.random
        kind = pick.choices(list(KINDS), list(KINDS.values()))[0]
        fields: dict[str, Any] = {
            "command": f". {self._folder}/job.sh",
            "queue": pick.choice(QUEUES),
            "priority": pick.randint(-1, 1),
            "max_retries": pick.randint(1, 3),
            "backoff_base": pick.choice((0, 0.2)),
            "timeout_seconds": pick.choice((0.1, 0.3)) if kind == "hang" else 20,
            "env": {"KIND": kind},
            "tags": [kind],
        }
        wishes: dict[str, Callable[[], dict[str, Any]]] = {
            "key": lambda: {"key": pick.choice(KEYS), **pick.choice(({}, {"key_limit": 1}, {"key_limit": 2}))},
            "unique": lambda: {
                "unique_key": pick.choice(UNIQUE),
                "on_duplicate": pick.choice(("refuse", "skip", "replace")),
            },
            "batch": lambda: {"batch": pick.choice(BATCHES), **pick.choice(({}, {"max_fails": pick.randint(2, 4)}))},
            "delay": lambda: {"run_at": pick.choice((0.1, 0.5, 3600))},
            "notify": lambda: {"notify": [pick.choice(NAMES)]},
            "after": lambda: {
                "depends_on": [
                    {"id": id, "condition": pick.choice(("ok", "ok", "any", "fail"))} for id in self.jobs(2)
                ]
            },
        }
        for name, chance in {
            "key": 0.3,
            "unique": 0.1,
            "batch": 0.2,
            "delay": 0.1,
            "notify": 0.05,
            "after": 0.25,
        }.items():
            if pick.random() < chance:
                fields |= wishes[name]()
        return {**fields, **more}

    def family(self, size: int) -> list[dict[str, Any]]:
        """Several jobs, of which each but the first may wait for one before it."""
        self._number += 1
        stem = f"f{self.random.getrandbits(32):x}-{self._number}"
        made: list[dict[str, Any]] = []
        for number in range(size):
            job = self.job(id=f"{stem}-{number}")
            if made and self.random.random() < 0.7:
                parent = self.random.choice(made)["id"]
                job["depends_on"] = [{"id": parent, "condition": self.random.choice(("ok", "any", "fail"))}]
            made.append(job)
        return made

    # -- commands ----------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Any command, the common ones more often."""
        makers = self._makers()
        weights = [weight for weight, _ in makers.values()]
        return self.random.choices([make for _, make in makers.values()], weights)[0]()

    def _makers(self) -> dict[str, tuple[float, Callable[[], Plan]]]:
        pick = self.random
        return {
            "enqueue": (10, self._enqueue),
            # 1: some of them were cancelled, and others finished before
            "cancel": (3, lambda: Plan(("cancel", *self.jobs()), (1, *DEAD_AND_GONE))),
            "cancel batch": (0.5, lambda: Plan(("cancel", "--batch", pick.choice(BATCHES)), (1, *DEAD_AND_GONE))),
            "retry": (2, lambda: Plan(("dlq", "retry", *self.jobs(1)), DEAD_AND_GONE)),
            "retry all": (1, lambda: Plan(("dlq", "retry", "--all"), (0, 4))),
            "purge": (1, lambda: Plan(("dlq", "purge", "--yes", *self.jobs(1)), DEAD_AND_GONE)),
            "prune": (0.7, self._prune),
            "backup": (0.5, self._backup),
            "reset": (0.2, lambda: Plan(("reset", "--yes"), (0, 4))),
            "config": (1, self._config),
            "queue": (3, self._queue),
            "schedule": (1.5, self._schedule),
            "hook": (1, self._hook),
            "read": (1.5, self._read),
        }

    def _enqueue(self) -> Plan:
        pick = self.random
        allowed = (0, 3, 4)  # a hook is gone; a key is taken, a parent can never complete
        match pick.randrange(5):
            case 0:
                words = ["--queue", pick.choice(QUEUES), "--key", pick.choice(KEYS), "--max-retries", "2"]
                return Plan(("enqueue", "--quiet", *words, "--env", "KIND=ok", f". {self._folder}/job.sh"))
            case 1:
                lines = "".join(json.dumps(job) + "\n" for job in self.family(pick.randint(2, 8)))
                return Plan(("enqueue", "--quiet", "-"), allowed, lines)
            case 2:
                lines = f"# commands\n. {self._folder}/job.sh\n\n. {self._folder}/job.sh\n"
                return Plan(("enqueue", "--quiet", "--lines", "--batch", pick.choice(BATCHES), "-"), (0,), lines)
            case 3:
                words = ["--array", "1-4%2", "--env", f"KIND={pick.choice(('ok', 'fail'))}", "--max-retries", "1"]
                return Plan(("enqueue", "--quiet", *words, f". {self._folder}/job.sh"))
        return Plan(("enqueue", "--quiet", json.dumps(self.job())), allowed)

    def _prune(self) -> Plan:
        states = self.random.choice(((), ("--state", "dead"), ("--state", "completed", "--state", "cancelled")))
        return Plan(("prune", "--older-than", self.random.choice(("0s", "1s")), *states))

    def _backup(self) -> Plan:
        self._number += 1
        path = f"{self._folder}/backup-{self.random.getrandbits(32):x}-{self._number}.db"
        return Plan(("backup", path), (4,) if self._leased else (0,))

    def _config(self) -> Plan:
        key = self.random.choice(list(SETTINGS))
        if self.random.random() < 0.3:
            return Plan(("config", "unset", key))
        return Plan(("config", "set", key, str(self.random.choice(SETTINGS[key]))))

    def _queue(self) -> Plan:
        pick, queue = self.random, self.random.choice(QUEUES)
        return Plan(
            pick.choice(
                (
                    ("queue", "pause", queue),
                    ("queue", "resume", queue),
                    ("queue", "resume", queue),
                    ("queue", "limit", queue, str(pick.randint(1, 3))),
                    ("queue", "limit", queue, str(pick.randint(1, 2)), "--per-key"),
                    ("queue", "limit", queue, "8", "--per", "1s"),
                    ("queue", "limit", queue, "none"),
                )
            ),
            (0, 3),  # nobody has mentioned the queue yet
        )

    def _schedule(self) -> Plan:
        pick, name = self.random, self.random.choice(NAMES)
        words = ["--every", "1s", "--missed", pick.choice(("latest", "all", "skip")), "--queue", pick.choice(QUEUES)]
        add = ("schedule", "add", name, *words, "--env", "KIND=ok", "--", f". {self._folder}/job.sh")
        what = pick.choice(("add", "add", "replace", "pause", "resume", "trigger", "remove"))
        if what in ("add", "replace"):
            return Plan(add if what == "add" else (*add[:3], "--replace", *add[3:]), (0, 4))
        return Plan(("schedule", what, name), (0, 3))

    def _hook(self) -> Plan:
        pick, name = self.random, self.random.choice(NAMES)
        if pick.random() < 0.5:
            return Plan(
                ("hook", "add", name, "--on", "dead", "--on", "completed", "--for-named", "--", "true"), (0, 4)
            )
        return Plan(("hook", pick.choice(("remove", "pause", "resume")), name), (0, 3))

    def _read(self) -> Plan:
        [id] = self.jobs(1)[:1]
        return self.random.choice(
            (
                Plan(("show", id), (0, 3)),
                Plan(("history", id), (0, 3)),
                Plan(("explain", id), (0, 3)),
                Plan(("logs", id), (0, 3)),
                Plan(("wait", "--timeout", "0.3s", id), (0, 1, 3, 124)),
                Plan(("list", "--state", "dead")),
                Plan(("status",)),
                Plan(("doctor",), (0, 1)),
            )
        )

    # -- the same through the API ------------------------------------------------------------------------

    def request(self) -> tuple[str, str, Any, tuple[int, ...], dict[str, str]]:
        """Method, path, body, the statuses that it may be answered with, and headers."""
        pick, id = self.random, self.jobs(1)[0]
        changed = (200, 404, 409)
        words = pick.choice(("state:dead", "state:completed tag:ok", "tag:fail", "queue:slow", "batch:b1"))
        ids = self.jobs()
        many = {"q": words} if pick.random() < 0.5 else {"ids": ids}
        number = pick.randrange(100)
        keyed = {"Idempotency-Key": f"once-{number}"}  # with the same request, whoever makes it
        plain = {"command": "true", "queue": QUEUES[number % len(QUEUES)]}
        queue = {"paused": pick.random() < 0.3, "at_once": pick.choice((None, 1, 2))}
        return pick.choice(
            [
                *[("POST", "/jobs", self.job(), (201, 404, 409), {})] * 4,
                *[("POST", "/jobs", {"jobs": self.family(4)}, (201, 404, 409), {})] * 3,
                *[("POST", "/jobs", {"jobs": [plain, plain]}, (201, 404), keyed)] * 3,
                ("DELETE", f"/jobs/{id}", None, (204, 404, 409), {}),
                ("POST", f"/jobs/{id}/cancel", None, changed, {}),
                ("POST", f"/jobs/{id}/retry", None, changed, {}),
                ("POST", "/jobs/cancel", {"ids": ids} if "q" in many else many, changed, {}),
                ("POST", "/jobs/retry", {"q": "queue:mail"}, changed, {}),
                ("POST", "/jobs/delete", {"q": "state:completed"} if "q" in many else many, changed, {}),
                ("PATCH", f"/queues/{pick.choice(QUEUES)}", queue, (200, 404), {}),
                ("PUT", "/config/max_retries", {"value": pick.randint(1, 3)}, (200,), {}),
                ("POST", f"/schedules/{pick.choice(NAMES)}/trigger", None, (201, 404, 409), {}),
                ("GET", "/stats", None, (200,), {}),
            ]
        )


DELETED_SOME = "were deleted before that"  # says a reset that was refused between two of its steps


class Shell:
    """Runs commands as a user does, in a process of their own or (`warm`) in one that is forked."""

    def __init__(self, q: Cli, known: Known) -> None:
        self._q = q
        self._known = known

    def warm(self, plan: Plan) -> int:
        start = now_ms()
        result = self._q(*plan.args, stdin=plan.stdin)
        self._heard(plan, result.code, result.out, result.err, start)
        return result.code

    def real(self, plan: Plan, pause: float = 0, stop: float = 0, kill: bool = False) -> int:
        """In an interpreter of its own, that is stopped after so long and for so long, or killed then."""
        start = now_ms()
        with subprocess.Popen(
            [QUEUECTL, *plan.args],
            env=self._q.env,
            cwd=self._q.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                hurt = threading.Thread(target=_hurt, args=(process, pause, stop, kill))
                hurt.start()
                out, err = process.communicate(plan.stdin, timeout=DEADLINE + stop)
            except subprocess.TimeoutExpired:
                process.kill()
                self._known.judge(_name(plan), -1, (), f"no end within {DEADLINE + stop:g} s")
                return -1
            finally:
                hurt.join()
        allowed = (*plan.allowed, -signal.SIGKILL) if kill else plan.allowed
        self._heard(plan._replace(allowed=allowed), process.returncode, out, err, start)
        return process.returncode

    def _heard(self, plan: Plan, code: int, out: str, err: str, start: int) -> None:
        name = _name(plan)
        self._known.judge(name, code, plan.allowed, out + err)
        if code == 0 and name == "enqueue":
            self._known.store([id for id in out.split() if id])
        if code == 0 and name == "backup":
            self._known.backups.append(plan.args[-1])
        if name == "reset" and (code in (0, -signal.SIGKILL) or DELETED_SOME in err):
            self._known.resets.append((start, now_ms()))


def _name(plan: Plan) -> str:
    groups = ("dlq", "config", "queue", "schedule", "hook", "worker")
    return " ".join(plan.args[: 2 if plan.args[0] in groups else 1])


def _hurt(process: subprocess.Popen[str], pause: float, stop: float, kill: bool) -> None:
    if not (stop or kill):
        return
    time.sleep(pause)
    if kill:
        process.kill()
    else:
        process.send_signal(signal.SIGSTOP)
        time.sleep(stop)
        process.send_signal(signal.SIGCONT)


class Client:
    """Speaks HTTP to `queuectl serve`."""

    def __init__(self, token: str, known: Known) -> None:
        self._known = known
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(
        self, port: int, method: str, path: str, body: Any, allowed: tuple[int, ...], headers: Mapping[str, str]
    ) -> bool:
        """Was there an answer?"""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        data = None if body is None else json.dumps(body)
        try:
            connection.request(method, f"/api/v1{path}", data, {**self._headers, **headers})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):  # the server was killed: nobody knows if it has happened
            return False
        finally:
            connection.close()
        name = f"{method} {'/'.join(path.split('/')[:2])}"
        self._known.judge(name, response.status, allowed, text)
        answer: Any = json.loads(text) if text else None
        if response.status == 201 and path == "/jobs":
            ids = [job["id"] for job in answer.get("jobs", [answer])]
            if "Idempotency-Key" in headers:
                self._known.answer(headers["Idempotency-Key"], ids)
            self._known.store(ids)
        return True
