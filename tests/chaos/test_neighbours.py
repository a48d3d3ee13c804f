"""A hostile neighbour: another user plants files where ours will be, and puts others in the place of ours."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType

import apsw
import pytest

from queuectl import doctor
from queuectl.cli.worker import _open_log
from queuectl.errors import StoreUnavailable, Untrusted
from queuectl.jobs import log_files
from queuectl.jobs.job_spec import NewJob
from queuectl.store import open_store
from queuectl.system import procfs, wakeup
from queuectl.system.wakeup import Bell
from queuectl.web import tokens
from queuectl.worker import lease, manager_pidfile, progress, run_registry
from queuectl.worker.lease import Lease
from queuectl.worker.run_registry import Board
from tests.conftest import DEADLINE, eventually
from tests.e2e.conftest import QUEUECTL, Result, kill, processes_with

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a second user to act as a neighbour")

MALLORY = 65533
NAME = f"user {MALLORY}"  # nobody has this number, and so no name
TAG = "q:w:1:1"
SECRET = "0123456789abcdef0123456789abcdef"
FORMS = ("file", "link", "pipe", "hard link", "folder", "socket")
REFUSES = {  # what may not be used, if the neighbour has planted this
    "": {"enqueue"},
    "-journal": {"enqueue"},
    "-wal": {"enqueue"},
    "-shm": {"enqueue"},
    ".run": {"work", "stop"},
    ".serve": {"serve"},
    "logs": {"log"},
}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def complain(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, complain)
    signal.alarm(round(DEADLINE))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of ours that others can look into; tests let them write to it."""
    with tempfile.TemporaryDirectory(prefix="queuectl-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        for pid in processes_with(f"QUEUECTL_DB={folder}/queue.db"):
            kill(pid)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Files of ours that a neighbour would like us to change, to read out, or to believe."""
    folder = tmp_path / "precious"
    folder.mkdir(mode=0o700)
    for name in ("file", "token", "key", "job_x.log", "workers.log", "w1.runs"):
        (folder / name).write_text(f"{SECRET}\n")
        (folder / name).chmod(0o600)
    return folder


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a neighbour would like us to kill."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={**os.environ, "QUEUECTL_RUN": TAG})
    yield process
    assert process.poll() is None, "it was killed"
    process.kill()
    process.wait()


def become_mallory() -> None:
    os.setgroups([])
    os.setgid(MALLORY)
    os.setuid(MALLORY)
    os.umask(0)


def as_mallory(act: Callable[[], object]) -> bool:
    """Let the neighbour do something, in a process of its own; False if it was not allowed to."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            become_mallory()
            act()
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1), "what the neighbour tried is wrong"
    return code == 0


def plant(path: Path, form: str, precious: Path, replace: bool = False) -> bool:
    """Plant something here; `replace`: in the place of what is here. Some systems let no user link to another's files
    (protected_hardlinks), which is not counted on: we make the link in the neighbour's name."""
    target = precious if path.suffix in (".run", ".serve") or path.name == "logs" else precious / "file"

    def act() -> None:
        if replace and os.path.lexists(path):
            path.rename(path.with_name("away"))
        match form:
            case "file":
                path.write_text(f"{SECRET}\n")
            case "link":
                path.symlink_to(target)
            case "pipe":
                os.mkfifo(path, 0o666)
            case "folder":
                path.mkdir(0o777)
                for name in ("token", "key", "job_x.log", "workers.log"):
                    (path / name).write_text(f"{SECRET}\n")
            case "socket":
                os.chdir(path.parent)
                socket.socket(socket.AF_UNIX).bind(path.name)

    if form == "hard link":
        if os.path.lexists(path) and not (replace and as_mallory(lambda: path.rename(path.with_name("away")))):
            return False
        os.link(precious / "file", path)
        return True
    return as_mallory(act)


def seen(path: Path) -> object:
    """All of it: kind, owner, mode, number, content."""
    found = path.lstat()
    what: object = None
    if path.is_symlink():
        what = os.readlink(path)
    elif path.is_file():
        what = path.read_bytes()
    elif path.is_dir():
        what = {entry.name: seen(entry) for entry in path.iterdir()}
    return found.st_mode, found.st_uid, found.st_ino, what


def acts(db: Path) -> dict[str, Callable[[], None]]:
    """What uses which of the files of a queue."""
    run_dir, serve_dir, log_dir = f"{db}.run", f"{db}.serve", str(db.parent / "logs")

    def enqueue() -> None:
        store = open_store(str(db))
        store.enqueue([NewJob("true")])
        assert store.views.counts()["pending"] > 0
        store.close()

    def work() -> None:
        own = Bell(run_dir, "w1")
        assert wakeup.ring(run_dir) == 1
        own_board, promise = Board(run_dir, "w1", "q", ""), Lease(run_dir, "w1")
        promise.renew(lease.now(), 30)
        assert lease.ends_at(run_dir, "w1") != lease.NEVER
        assert not run_registry.read(own_board.path).tags
        promise.end()
        own_board.remove()
        own.close()

    def stop() -> None:
        assert manager_pidfile.managers(run_dir) == {}

    def serve() -> None:
        assert tokens.own_token(serve_dir)[0].secret != SECRET
        assert tokens.signing_key(serve_dir) != SECRET.encode()

    def log() -> None:
        log_files.append(log_files.path_of(log_dir, "x"), b"hello")
        assert log_files.read(log_files.path_of(log_dir, "x"))[0].endswith(b"hello")
        _open_log(f"{log_dir}/workers.log").close()

    return {"enqueue": enqueue, "work": work, "stop": stop, "serve": serve, "log": log}


def refusals(db: Path) -> dict[str, str]:
    """What is refused of all that can be done with this queue, and why."""
    found = {}
    for name, act in acts(db).items():
        try:
            act()
        except Untrusted as error:
            found[name] = f"{error.message}. Hint: {error.hint}"
    assert not any("\n" in why or why.endswith("Hint: ") for why in found.values())
    return found


def path_of(db: Path, target: str) -> Path:
    return db.with_name(target) if target == "logs" else db.with_name(db.name + target)


# -- planted before us, and in the place of ours ---------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", REFUSES)
def test_what_was_planted_in_a_sticky_folder_is_not_used(place: Path, precious: Path, target: str, form: str) -> None:
    place.chmod(0o1777)
    db = place / "queue.db"
    path = path_of(db, target)
    assert plant(path, form, precious)
    planted, ours = seen(path), seen(precious)
    refused = refusals(db)
    assert refused.keys() == REFUSES[target]
    for message in refused.values():
        assert f'"{path}"' in message
        assert ("owner: root" if form == "hard link" else NAME) in message
    assert seen(path) == planted
    assert seen(precious) == ours
    assert any(not finding.ok and str(path) in finding.found for finding in doctor.examine(str(db)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", REFUSES)
def test_nothing_can_be_planted_in_a_sticky_folder_where_a_queue_is_in_use(
    place: Path, precious: Path, target: str, form: str
) -> None:
    place.chmod(0o1777)
    db = place / "queue.db"
    assert refusals(db) == {}
    assert not plant(path_of(db, target), form, precious)
    assert not plant(path_of(db, target), form, precious, replace=True)
    assert refusals(db) == {}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", REFUSES)
def test_nothing_is_used_in_a_folder_where_others_can_exchange_it(
    place: Path, precious: Path, target: str, form: str
) -> None:
    db = place / "queue.db"
    assert refusals(db) == {}
    os.chown(place, 0, MALLORY)
    place.chmod(0o775)
    path = path_of(db, target)
    assert plant(path, form, precious, replace=True)
    everything, ours = seen(place), seen(precious)
    refused = refusals(db)
    assert refused.keys() == acts(db).keys()
    assert all(f'"{place}" (owner: root) can be written by the group {MALLORY}' in why for why in refused.values())
    assert seen(place) == everything
    assert seen(precious) == ours
    findings = [finding for finding in doctor.examine(str(db)) if not finding.ok]
    assert any(f"chmod go-w {place}" in finding.advice for finding in findings)


# -- what is left of it in folders that are ours by now --------------------------------------------------

RESULT = "queue.db.run/w1.1.1.result"
READERS: dict[str, Callable[[str], object]] = {
    "queue.db.run/w1.runs": run_registry.read,
    "queue.db.run/w1.lease": lambda path: lease.ends_at(os.path.dirname(path), "w1"),
    RESULT: progress._read,
    "queue.db.serve/token": lambda path: tokens.own_token(os.path.dirname(path)),
    "queue.db.serve/key": lambda path: tokens.signing_key(os.path.dirname(path)),
    "logs/job_x.log": lambda path: log_files.append(path, b"hello"),
    "logs/workers.log": _open_log,
    "tokens": tokens.given_tokens,
}


# A job may link its result, and the user who names a file of tokens may name a link.
LEFT = sorted({(name, form) for name in READERS for form in FORMS} - {(RESULT, "hard link"), ("tokens", "link")})


@pytest.mark.parametrize(("name", "form"), LEFT)
def test_what_is_left_of_a_neighbours_files_in_our_folders_is_not_used(
    place: Path, precious: Path, name: str, form: str
) -> None:
    """Somebody has taken the neighbour's right to write to our folder away, but not what it had put there."""
    path = place / name
    path.parent.mkdir(mode=0o777, exist_ok=True)
    path.parent.chmod(0o777)
    assert plant(path, form, precious)
    path.parent.chmod(0o700)
    planted, ours = seen(path), seen(precious)
    with pytest.raises(Untrusted) as refused:
        READERS[name](str(path))
    assert f'"{path}"' in refused.value.message
    assert seen(path) == planted
    assert seen(precious) == ours


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_pipe_of_ours_is_no_worker_and_not_written_to(place: Path, precious: Path, form: str) -> None:
    run_dir = place / "queue.db.run"
    run_dir.mkdir()
    run_dir.chmod(0o777)
    assert plant(run_dir / "w1", form, precious)
    run_dir.chmod(0o700)
    ours = seen(precious)
    listener = os.open(run_dir / "w1", os.O_RDONLY | os.O_NONBLOCK) if form == "pipe" else None
    assert wakeup.ring(str(run_dir)) == 0
    assert not wakeup.answers(str(run_dir), "w1", os.getpid(), procfs.start_time(os.getpid()))
    assert not wakeup.anyone(str(run_dir))
    wakeup.sweep(str(run_dir))
    assert seen(precious) == ours
    if listener is not None:
        assert os.read(listener, 10) == b""
        os.close(listener)


# -- attacks that worked ---------------------------------------------------------------------------------


def queuectl(db: Path, *args: str) -> Result:
    env = {**os.environ, "QUEUECTL_DB": str(db), "HOME": str(db.parent), "QUEUECTL_DEBUG": ""}
    done = subprocess.run([QUEUECTL, *args], env=env, capture_output=True, text=True, timeout=DEADLINE)
    return Result(done.returncode, done.stdout, done.stderr)


def is_refused(result: Result, *words: str) -> None:
    assert result.code == 5, result
    assert len(result.err.splitlines()) == 1, result
    assert "Hint: " in result.err
    for word in words:
        assert word in result.err


def test_a_planted_token_lets_nobody_in(place: Path, precious: Path) -> None:
    place.chmod(0o1777)
    db = place / "queue.db"
    assert plant(place / "queue.db.serve", "folder", precious)
    is_refused(queuectl(db, "serve", "--port", "0"), f'"{db}.serve"', NAME)


def test_a_planted_manager_is_not_signalled(place: Path, bystander: subprocess.Popen[bytes]) -> None:
    place.chmod(0o1777)
    db, run_dir = place / "queue.db", place / "queue.db.run"
    text = f"{procfs.start_time(bystander.pid)} {procfs.here()}"

    def act() -> None:
        run_dir.mkdir(0o755)
        (run_dir / f"{bystander.pid}.manager").write_text(text)

    assert as_mallory(act)
    is_refused(queuectl(db, "worker", "stop"), f'"{run_dir}"', NAME)
    is_refused(queuectl(db, "worker", "start"), f'"{run_dir}"', NAME)


def test_a_registry_put_in_the_place_of_ours_while_workers_run_kills_nobody(
    place: Path, bystander: subprocess.Popen[bytes]
) -> None:
    db, run_dir, log = place / "queue.db", place / "queue.db.run", place / "logs" / "workers.log"
    assert queuectl(db, "worker", "start").code == 0
    with closing(open_store(str(db))) as store:
        [worker] = store.views.workers()
    text = f"q {procfs.here()} \n{f'1 {TAG}'.ljust(95)}\n"

    def act() -> None:
        run_dir.rename(place / "away")
        run_dir.mkdir(0o755)
        (run_dir / f"{worker.id}.runs").write_text(text)

    place.chmod(0o777)  # a mistake of ours
    assert as_mallory(act)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: "could not end a dead worker's runs" in log.read_text(), "the manager to look")
    eventually(lambda: "store unavailable" in log.read_text(), "the successor to refuse the folder")
    assert bystander.poll() is None


def test_the_database_of_another_user_is_not_used(place: Path) -> None:
    """Else root's workers would run its commands."""
    place.chmod(0o1777)
    db = place / "queue.db"

    def act() -> None:
        open_store(str(db)).enqueue([NewJob(f"touch {place}/ran")])

    assert as_mallory(act)
    before = seen(place)
    for command in (["worker", "start"], ["status"], ["enqueue", "true"], ["reset", "--yes"]):
        is_refused(queuectl(db, *command), f'"{db}"', NAME)
    shown = queuectl(db, "doctor")
    assert shown.code == 1
    assert f'"{db}" belongs to {NAME}' in shown.out
    assert seen(place) == before


def test_root_is_told_how_to_use_the_database_of_a_user(place: Path) -> None:
    nobody = 65534
    db = place / "queue.db"
    open_store(str(db)).close()
    os.chown(db, nobody, nobody)
    os.chown(place, nobody, nobody)
    is_refused(queuectl(db, "status"), "belongs to nobody", "runuser -u nobody -- queuectl")


def evil_copy(db: Path, tmp_path: Path, mode: str) -> bytes:
    """A log (or a journal) of this database, as a neighbour who knows it would make it."""
    copy = tmp_path / "copy.db"
    shutil.copy(db, copy)
    attacker = apsw.Connection(str(copy))
    attacker.pragma("journal_mode", mode)
    script = "UPDATE jobs SET command = 'evil'"
    if mode == "wal":
        attacker.execute(script)
        return Path(f"{copy}-wal").read_bytes()
    attacker.execute(script)
    attacker.pragma("cache_spill", True)
    attacker.execute("BEGIN IMMEDIATE; UPDATE jobs SET command = 'good'")
    attacker.cache_flush()
    journal = bytearray(Path(f"{copy}-journal").read_bytes())
    attacker.execute("ROLLBACK")
    return bytes(journal)


@pytest.mark.parametrize(("mode", "end"), [("wal", "-wal"), ("delete", "-journal")])
def test_a_planted_log_changes_no_job(place: Path, tmp_path: Path, mode: str, end: str) -> None:
    """While the queue is idle, and a planter that does nothing but wait for its chance."""
    place.chmod(0o1777)
    db = place / "queue.db"
    store = open_store(str(db))
    store.enqueue([NewJob("good")])
    store.close()
    for leftover in ("-journal", "-wal", "-shm"):
        path_of(db, leftover).unlink(missing_ok=True)  # as if it came from elsewhere
    log = evil_copy(db, tmp_path, mode)
    assert b"evil" in log
    path = path_of(db, end)

    def plant_again_and_again() -> None:
        while True:
            try:
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "wb") as file:
                    file.write(log)
                time.sleep(random.random() / 1000)
                os.unlink(path)
            except OSError:
                pass
            time.sleep(random.random() / 200)

    planter = os.fork()
    if planter == 0:
        become_mallory()
        plant_again_and_again()
    try:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):  # SQLite would open, or make, what the planter can put there
                open_store(str(db))
    finally:
        os.kill(planter, signal.SIGKILL)
        os.waitpid(planter, 0)
    (tmp_path / "own").mkdir(mode=0o700)
    db.rename(tmp_path / "own" / "queue.db")
    with closing(open_store(str(tmp_path / "own" / "queue.db"))) as store:
        assert [job.command for job in store.views.jobs()] == ["good"]


# -- while workers run -----------------------------------------------------------------------------------


def test_a_neighbour_of_running_workers_can_do_nothing(place: Path, precious: Path) -> None:
    place.chmod(0o1777)
    db = place / "queue.db"
    assert queuectl(db, "worker", "start").code == 0
    for path in sorted(place.iterdir()):
        for form in FORMS:
            assert not plant(path, form, precious, replace=True)
        for act in (
            os.unlink,
            os.rmdir,
            os.listdir,
            lambda path: path.read_bytes(),
            lambda path: path.write_bytes(b""),
        ):
            assert not as_mallory(partial(act, path))
    with closing(open_store(str(db))) as store:
        store.enqueue([NewJob("true")])
        eventually(lambda: store.views.counts()["completed"] == 1, "the job to be run")
    assert queuectl(db, "worker", "stop").code == 0
