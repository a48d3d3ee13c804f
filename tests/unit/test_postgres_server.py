"""The PostgreSQL server of the tests: there when asked for, back after a crash, gone with those who used it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuectl.system import procfs
from tests.conftest import eventually
from tests.postgres import Server, shared

ROOT = Path(__file__).parents[2]
TELL = "print(server.pid, server.sql('SHOW data_directory')[0][0], flush=True); sys.stdin.read()"


class User:
    """Another process with a server, which it leaves when told to."""

    def __init__(self, server: str, folder: Path) -> None:
        script = f"import sys\nfrom tests.postgres import *\nwith {server}(Path(sys.argv[1])) as server: {TELL}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def server(self) -> tuple[int, Path]:
        """Its process and its data, once it answers."""
        assert self.process.stdout
        pid, data = self.process.stdout.readline().split()
        return int(pid), Path(data)

    def leave(self) -> None:
        self.process.communicate()

    def be_killed(self) -> None:
        self.process.kill()
        self.leave()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Callable[[str], User]]:
    users: list[User] = []

    def come(server: str) -> User:
        users.append(User(server, tmp_path))
        return users[-1]

    yield come
    for one in users:
        one.be_killed()


def gone(pid: int) -> bool:
    return procfs.process(pid) is None


def test_a_server_takes_a_free_port_and_comes_back_from_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = iter([taken, *range(20_000, 21_000)])
        monkeypatch.setattr("tests.postgres._some_port", lambda: next(ports))
        server = Server.start(tmp_path, cluster_name="it's", work_mem="3MB")
    with server:
        assert server.port != taken
        assert server.url("a") == f"postgresql://queuectl@127.0.0.1:{server.port}/queuectl?schema=a"
        shown = [server.sql(f"SHOW {name}") for name in ("fsync", "max_connections", "work_mem", "cluster_name")]
        assert shown == [[("on",)], [("200",)], [("3MB",)], [("it's",)]]
        [(data,)] = server.sql("SHOW data_directory")

        assert server.sql("CREATE TABLE kept AS SELECT 7 AS n") == []
        pid, url = server.pid, server.url()
        server.restart("immediate")
        assert gone(pid)
        assert server.url() == url
        assert server.sql("SELECT n FROM kept") == [(7,)]
        assert "was not properly shut down" in (tmp_path / "postgres.log").read_text()
    assert gone(server.pid)
    assert not Path(data).exists()


def test_a_server_ends_when_its_starter_is_killed(user: Callable[[str], User]) -> None:
    starter = user("Server.start")
    pid, data = starter.server()
    try:
        starter.be_killed()
        eventually(lambda: gone(pid), "no server")
    finally:
        shutil.rmtree(data)


def test_users_share_one_server_until_the_last_is_gone(tmp_path: Path, user: Callable[[str], User]) -> None:
    first, second = user("shared"), user("shared")
    pid, data = first.server()
    assert second.server() == (pid, data)
    first.be_killed()
    with shared(tmp_path) as server:
        second.leave()
        assert server.pid == pid
        assert server.sql("SELECT 1") == [(1,)]
        with pytest.raises(AssertionError, match="others use this server"):
            server.restart()
    eventually(lambda: gone(pid) and not data.exists(), "no server and no data")
    with shared(tmp_path) as server:
        assert server.pid != pid
        assert server.sql("SELECT 1") == [(1,)]
    eventually(lambda: gone(server.pid), "no server")


def test_a_user_hears_why_there_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "postgres.log").mkdir()
    with pytest.raises(RuntimeError, match="IsADirectoryError"), shared(tmp_path):
        pass
