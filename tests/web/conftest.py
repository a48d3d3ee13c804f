"""A real server on a queue of its own, and a real browser before it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from queuectl.jobs.job_spec import NewJob
from queuectl.store import Store, open_store
from tests.conftest import DEADLINE
from tests.e2e.conftest import QUEUECTL, Cli
from tests.postgres import postgres as postgres

ROLES = ("viewer", "operator", "admin")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Served:
    """`queuectl serve`, in a process of its own."""

    def __init__(self, cli: Cli, *options: str, tokens: bool = True, port: int = 0) -> None:
        self.cli = cli
        self.tokens = {role: secrets.token_hex(16) for role in ROLES} if tokens else {}
        self._options = list(options)
        if tokens:
            file = cli.folder / "tokens"
            file.write_text("".join(f"{role} {role} {token}\n" for role, token in self.tokens.items()))
            file.chmod(0o600)
            self._options += ["--token-file", str(file)]
        self.start(port)

    def start(self, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [QUEUECTL, "serve", "--port", str(port), *self._options],
            env=self.cli.env,
            cwd=self.cli.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        self.printed = ""
        while "Ctrl-C" not in self.printed:
            line = self.process.stdout.readline()
            assert line, f"serve ended: {self.printed}"
            self.printed += line
        self.link = next(iter(re.findall(r"http://\S+/login\?code=\S+", self.printed)), "")
        self.url = re.findall(r"http://[^\s/]+", self.printed)[0]
        self.port = int(self.url.rpartition(":")[2])

    def http(self, role: str | None = "admin", **headers: str) -> httpx.Client:
        """A program that talks to it with the token of a role."""
        token = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return httpx.Client(base_url=self.url, headers={**token, **headers}, timeout=DEADLINE)

    @contextmanager
    def session(self, role: str = "admin") -> Iterator[httpx.Client]:
        """What a browser would send after a login; the CSRF token is in its headers."""
        with httpx.Client(base_url=self.url, timeout=DEADLINE) as client:
            assert client.post("/login", data={"token": self.tokens[role]}).status_code == 303
            [csrf] = re.findall(r'<meta name="csrf" content="(\w+)">', client.get("/").text)
            client.headers["X-CSRF-Token"] = csrf
            yield client

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        if self.process.stdout and not self.process.stdout.closed:
            self.printed += self.process.stdout.read()
            self.process.stdout.close()
        return code

    def restart(self) -> None:
        """The same port and tokens, another process."""
        self.stop()
        self.start(self.port)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path)
    cli.db.parent.mkdir(mode=0o700)
    return cli


@pytest.fixture
def store(cli: Cli) -> Iterator[Store]:
    """The queue that is served, by a connection of the test's own."""
    store = open_store(cli.url)
    yield store
    store.close()


@contextmanager
def serving(cli: Cli, *options: str, **more: Any) -> Iterator[Served]:
    served = Served(cli, *options, **more)
    try:
        yield served
    finally:
        served.stop()
        assert "Traceback" not in served.printed, served.printed


@pytest.fixture
def served(cli: Cli) -> Iterator[Served]:
    with serving(cli) as served:
        yield served


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser itself, one for each process of the tests."""
    if CHROMIUM is None:
        assert not os.environ.get("QUEUECTL_TEST_BROWSER"), "Chromium was promised, and is not there"
        pytest.skip("there is no Chromium: apt-get install chromium")
    expect.set_options(timeout=DEADLINE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, served: Served) -> Iterator[Page]:
    """A tab in which an admin has logged in. Whatever the page complains about in its console fails the test."""
    context = chromium.new_context(base_url=served.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(DEADLINE * 1000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    login(page, served)
    yield page
    context.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []


def login(page: Page, served: Served, role: str = "admin") -> None:
    page.goto("/login")
    page.get_by_label("Token").fill(served.tokens[role])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def enqueue(store: Store, command: str = "true", **fields: object) -> str:
    [id] = store.enqueue([NewJob(command, **fields)])  # type: ignore[arg-type]
    return id
