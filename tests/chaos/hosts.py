"""Machines of their own, as far as queuectl can tell: other pids, another home, and a wire that can be cut."""

from __future__ import annotations

import random
import subprocess
import uuid
from pathlib import Path

from tests.chaos.conftest import need
from tests.conftest import DEADLINE
from tests.e2e.conftest import QUEUECTL, Cli, processes_with

OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Host(Cli):
    """A machine with a home folder and processes of its own. Others know its workers only by their signs of life."""

    def __init__(self, folder: Path, url: str, wire: Wire | None = None) -> None:
        folder.mkdir()
        super().__init__(folder, url)
        self._enter = (*(wire.enter if wire else ()), *OWN_PIDS)
        self._log = folder / "workers.log"
        self._process: subprocess.Popen[bytes] | None = None

    def serve(self, *queues: str) -> None:
        """Start a manager with one worker for these queues."""
        need([*self._enter, "true"])
        options = [word for queue in queues for word in ("--queue", queue)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, QUEUECTL, "worker", "start", "--foreground", *options],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def outside(self, pid: int) -> int:
        """What we call a process that has this pid in there."""
        [found] = [one for one in processes_with(f"HOME={self.folder}") if _names(one)[1:] == [str(pid)]]
        return found

    def running(self, variable: str) -> set[int]:
        """The processes of its runs that have this in their environment."""
        return {*processes_with(f"HOME={self.folder}")} & {*processes_with(variable)}

    def end_all(self) -> None:
        super().end_all()
        if self._process:
            self._process.wait(DEADLINE)


def _names(pid: int) -> list[str]:
    """The pids of a process, from the outermost namespace to its own."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


class Wire:
    """A network in which a machine is alone with ours, and the only way between the two."""

    def __init__(self) -> None:
        self._name = f"q{uuid.uuid4().hex[:8]}"
        self._plug = f"{self._name}a"
        dice = random.SystemRandom()
        network, first = f"198.{dice.choice((18, 19))}.{dice.randrange(256)}", dice.randrange(0, 256, 4)
        self.address = f"{network}.{first + 1}"  # ours
        self.enter = ("nsenter", f"--net=/run/netns/{self._name}")
        need(["ip", "netns", "add", self._name])
        try:
            _ip("link", "add", self._plug, "type", "veth", "peer", "name", "far", "netns", self._name)
            _ip("address", "add", f"{self.address}/30", "dev", self._plug)
            _ip("-n", self._name, "address", "add", f"{network}.{first + 2}/30", "dev", "far")
            _ip("-n", self._name, "link", "set", "far", "up")
            self.mend()
        except BaseException:
            self.remove()
            raise

    def cut(self) -> None:
        """Nothing comes through, and nobody is told."""
        _ip("link", "set", self._plug, "down")

    def mend(self) -> None:
        _ip("link", "set", self._plug, "up")

    def remove(self) -> None:
        _ip("netns", "delete", self._name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
