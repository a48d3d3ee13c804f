"""The server itself: who gets in, and how it ends."""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.conftest import eventually
from tests.e2e.conftest import Cli
from tests.web.conftest import Served, serving


def test_the_printed_link_logs_in_once(cli: Cli) -> None:
    with serving(cli, tokens=False) as served:
        with httpx.Client(base_url=served.url) as browser:
            assert browser.get("/").headers["location"] == "/login"
            assert browser.get(served.link).status_code == 303
            assert "Overview" in browser.get("/").text
        with httpx.Client(base_url=served.url) as other:
            refused = other.get(served.link)
            assert refused.status_code == 401
            assert "has been used" in refused.text
            assert other.get("/").status_code == 303


def test_its_own_token_is_kept_where_only_the_owner_reads(cli: Cli) -> None:
    with serving(cli, tokens=False) as served:
        file = cli.db.with_name("queue.db.serve") / "token"
        assert str(file) in served.printed
        assert file.stat().st_mode & 0o777 == 0o600
        token = file.read_text().strip()
        with httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {token}"}) as program:
            assert program.get("/").status_code == 200
        assert token not in served.printed


def test_workers_do_not_clear_the_token_away(cli: Cli) -> None:
    """They clear their own folder of what is old and not theirs."""
    with serving(cli, tokens=False) as served:
        [token] = re.findall(r"It is in (\S+), which only you can read", served.printed)
        bearer = {"Authorization": f"Bearer {Path(token).read_text().strip()}"}
        for file in (Path(token), Path(token).with_name("key")):
            os.utime(file, (1, 1))
        cli.ok("worker", "start", "--count", "1")
        cli.ok("worker", "stop")
        served.restart()
        with httpx.Client(base_url=served.url) as program:
            assert program.get("/api/v1/whoami", headers=bearer).status_code == 200


def test_a_link_is_not_left_in_the_journal_of_a_service(served: Served) -> None:
    assert "code=" not in served.printed


@pytest.mark.parametrize("name", ["token", "key"])
def test_a_secret_that_was_never_written_lets_nobody_in(cli: Cli, name: str) -> None:
    folder = cli.db.with_name("queue.db.serve")
    folder.mkdir(mode=0o700)
    (folder / name).touch(mode=0o600)
    result = cli("serve", "--port", "0")
    assert result.code == 2
    assert "no secret" in result.err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_can_reach_needs_a_token(cli: Cli, host: str) -> None:
    result = cli("serve", "--host", host, "--port", "0")
    assert result.code == 2
    assert "there is no token" in result.err
    assert "QUEUECTL_TOKEN" in result.err


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        ("ann admin 0123456789abcdef", 0o644, "chmod 600"),
        ("ann amin 0123456789abcdef", 0o600, 'did you mean "admin"?'),
        ("ann admin short", 0o600, "at least 16"),
        ("ann admin", 0o600, "not a token"),
        ("", 0o600, "no token"),
        ("ann admin 0123456789abcdef\nann viewer 0123456789abcdeg", 0o600, "same name"),
        ("ann admin 0123456789abcdef\nbob viewer 0123456789abcdef", 0o600, "same text"),
    ],
)
def test_a_bad_token_file_is_refused(cli: Cli, text: str, mode: int, complaint: str) -> None:
    file = cli.folder / "tokens"
    file.write_text(text)
    file.chmod(mode)
    result = cli("serve", "--port", "0", "--token-file", str(file))
    assert result.code == 2
    assert complaint in result.err
    assert "0123456789abcdef" not in result.err


def test_a_token_never_stands_on_the_command_line(cli: Cli) -> None:
    assert cli("serve", "--token", "0123456789abcdef").code == 2


def test_a_session_outlives_the_server_and_ends_with_its_token(served: Served, cli: Cli) -> None:
    with served.session("viewer") as browser:
        served.restart()
        assert browser.get("/").status_code == 200
        file = cli.folder / "tokens"
        file.write_text(file.read_text().replace(served.tokens["viewer"], "f" * 32))
        served.restart()
        assert browser.get("/").status_code == 303


def test_it_ends_at_once_even_with_open_tabs(served: Served) -> None:
    with served.session() as browser, browser.stream("GET", "/live", params={"page": "/"}) as stream:
        lines = stream.iter_lines()
        eventually(lambda: "regions" in next(lines))
        assert served.stop() == 0
        assert "Cancel" not in served.printed  # nothing had to be torn down


def test_a_port_that_is_taken_is_told(served: Served, cli: Cli) -> None:
    result = cli("serve", "--port", str(served.port))
    assert result.code == 1
    assert "--port" in result.err


def test_a_browser_can_log_in(page: Page) -> None:
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
