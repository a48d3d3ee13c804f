"""Others that run shell commands from a queue, each set up the way its own manual says, with two of whatever it runs
jobs in. `scripts/bench --setup` installs what Debian and PyPI have; who is not there is named as missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Contender, Missing
from bench.rig import HERE, timed

VENV = HERE.parent / ".venv-bench"  # the peers from PyPI, apart from our own dependencies
DEBIAN = ("parallel", "task-spooler", "nq", "redis-server")
PYPI = (
    "huey",
    "rq",
    "redis",
    "celery",
    "hyperqueue",
    "procrastinate",
    "psycopg[binary,pool]",
    "pgqueuer",
    "asyncpg",
    "uvloop",
)


def set_up() -> None:
    """Install all of them."""
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", *DEBIAN], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    for package in PYPI:
        if subprocess.run([str(VENV / "bin" / "pip"), "install", "-q", package]).returncode:
            print(f"{package} could not be installed", file=sys.stderr)


def contenders() -> list[Contender]:
    return [
        Contender("GNU parallel -j2", lambda: parallel(600)),
        Contender("task-spooler, 2 slots", lambda: task_spooler(600)),
        Contender("nq", lambda: nq(200)),
        Contender("HyperQueue, 1 worker of 2 cores", lambda: hyperqueue(3000)),
        Contender("huey on SQLite, 2 workers", lambda: python_queue("huey_tasks", 1500)),
        Contender("rq on redis, 2 workers", lambda: with_redis(lambda env: python_queue("rq_tasks", 200, env))),
        Contender(
            "celery on redis, 2 workers", lambda: with_redis(lambda env: python_queue("celery_tasks", 1000, env))
        ),
    ]


def parallel(jobs: int) -> float:
    return jobs / timed([need("parallel"), "-j2", "--will-cite", "sh", "-c", "true", "#", "{}"],
                        input=b"x\n" * jobs, stderr=subprocess.DEVNULL)  # fmt: skip


def task_spooler(jobs: int) -> float:
    """Handed in one by one (there is no other way), which goes on while the first ones run."""
    program = need("tsp")
    with folder() as place:
        env = {
            **os.environ,
            "TS_SOCKET": str(place / "socket"),
            "TS_SLOTS": "2",
            "TMPDIR": str(place),
            "TS_MAXFINISHED": "10",
        }
        env["TS_MAXCONN"] = "1000"
        began = time.perf_counter()
        for _ in range(jobs):
            subprocess.run([program, "-n", "sh", "-c", "true"], env=env, stdout=subprocess.DEVNULL, check=True)
        subprocess.run([program, "-n", "-d", "true"], env=env, stdout=subprocess.DEVNULL, check=True)
        subprocess.run([program, "-w"], env=env, check=True)
        took = time.perf_counter() - began
        subprocess.run([program, "-K"], env=env, check=True)
    return jobs / took


def nq(jobs: int) -> float:
    """One at a time is all it does."""
    program = need("nq")
    with folder() as place:
        env = {**os.environ, "NQDIR": str(place)}
        began = time.perf_counter()
        for _ in range(jobs):
            subprocess.run([program, "-q", "sh", "-c", "true"], env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "-w"], env=env, check=True, stdout=subprocess.DEVNULL)
        return jobs / (time.perf_counter() - began)


def hyperqueue(jobs: int) -> float:
    """Its PyPI package is a library with a server inside, not the `hq` command."""
    python = VENV / "bin" / "python"
    if not python.exists():
        raise Missing("run scripts/bench --setup")
    with folder() as place:
        script = [str(python), str(HERE / "peer_scripts" / "hyperqueue_tasks.py"), str(jobs)]
        done = subprocess.run(script, cwd=place, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Missing(done.stderr.strip().splitlines()[-1])
    return jobs / float(done.stdout.split()[-1])


def python_queue(module: str, jobs: int, extra: dict[str, str] | None = None) -> float:
    """The peers in Python have a file each, with a `fill` and a `workers` command; a job appends a byte to a file."""
    python = VENV / "bin" / "python"
    script = HERE / "peer_scripts" / f"{module}.py"
    if not python.exists():
        raise Missing("run scripts/bench --setup")
    with folder() as place:
        env = {**os.environ, **(extra or {}), "PLACE": str(place), "PYTHONPATH": str(script.parent)}
        env["PATH"] = f"{python.parent}:{env['PATH']}"
        done = subprocess.run(
            [str(python), str(script), "fill", str(jobs)], env=env, cwd=place, capture_output=True, text=True
        )
        if done.returncode:
            raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
        began = time.perf_counter()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env, "cwd": place}
        with running([str(python), str(script), "workers"], quiet):
            ledger = place / "done"
            wait_for(lambda: ledger.exists() and ledger.stat().st_size >= jobs, seconds=120)
            return jobs / (time.perf_counter() - began)


def with_redis(run: Callable[[dict[str, str]], float]) -> float:
    program = need("redis-server")
    with folder() as place, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--appendonly", "yes"]
        with running([program, *options], {"stdout": subprocess.DEVNULL}):
            wait_for(lambda: _answers(port))
            return run({"REDIS_PORT": str(port)})


# -- what they share -------------------------------------------------------------------------------------


def need(name: str) -> str:
    program = shutil.which(name, path=f"{VENV / 'bin'}:{os.environ['PATH']}")
    if program is None:
        raise Missing("run scripts/bench --setup")
    return program


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="queuectl-bench-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def running(command: list[str], options: Mapping[str, object]) -> Iterator[None]:
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Missing(f"not ready within {seconds:g} s")
        time.sleep(0.005)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
