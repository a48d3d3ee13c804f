"""Which names the server answers to, and who has a session."""

from __future__ import annotations

import socket
import time

import pytest

from queuectl.web import auth
from queuectl.web.allowed_hosts import Hosts
from queuectl.web.auth import Access, Role, Token, User

ANN = Token("ann", Role.OPERATOR, "a" * 16)


@pytest.mark.parametrize("said", ["127.0.0.1:80", "localhost:80", "LOCALHOST:80", "[::1]:80", "q.it", "q.it:9"])
def test_on_this_machine_alone_its_own_names_will_do(said: str) -> None:
    assert said in Hosts("127.0.0.1", 80, ["q.it"])


@pytest.mark.parametrize("said", ["127.0.0.1:81", "evil:80", "10.0.0.1:80", "localhost.evil:80", ""])
def test_on_this_machine_alone_nothing_else_does(said: str) -> None:
    assert said not in Hosts("127.0.0.1", 80, ["q.it"])


def test_browsers_leave_out_port_80() -> None:
    assert "localhost" in Hosts("127.0.0.1", 80)
    assert "localhost" not in Hosts("127.0.0.1", 81)


def test_on_a_network_any_address_will_do_but_only_our_own_names() -> None:
    hosts = Hosts("0.0.0.0", 80)
    for said in ("10.1.2.3:80", "10.1.2.3", "[fe80::1]:8080", "localhost:80", f"{socket.gethostname()}:80"):
        assert said in hosts, said
    for said in ("evil:80", "evil", "10.1.2.3.evil:80", ""):
        assert said not in hosts, said


def test_a_session_says_who_it_is_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Access([ANN], b"key")
    cookie = entry.session(User("ann", Role.OPERATOR))
    user = entry.by_session(cookie)
    assert user
    assert (user.name, user.role) == ("ann", Role.OPERATOR)
    later = time.time() + auth.SESSION_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert entry.by_session(cookie) is None


def test_a_session_is_worth_nothing_elsewhere() -> None:
    cookie = Access([ANN], b"key").session(User("ann", Role.OPERATOR))
    assert Access([ANN], b"other").by_session(cookie) is None
    assert Access([ANN._replace(secret="b" * 16)], b"key").by_session(cookie) is None
    assert Access([ANN._replace(name="bob")], b"key").by_session(cookie) is None


@pytest.mark.parametrize("cookie", ["", ".", "x", "...", "ann", "ann.9.9.9", "ann.x.y.z", "é.é", "A" * 9999])
def test_what_is_no_session_is_nobody(cookie: str) -> None:
    assert Access([ANN], b"key").by_session(cookie) is None


def test_a_role_that_has_changed_counts_at_once() -> None:
    cookie = Access([ANN], b"key").session(User("ann", Role.OPERATOR))
    user = Access([ANN._replace(role=Role.VIEWER)], b"key").by_session(cookie)
    assert user
    assert user.role is Role.VIEWER


def test_the_code_of_a_link_works_once() -> None:
    entry = Access([ANN], b"key")
    code = entry.login_code()
    assert entry.redeem("x") is None
    assert entry.redeem("é") is None
    assert entry.redeem(code) == User("ann", Role.OPERATOR)
    assert entry.redeem(code) is None


def test_the_code_of_a_link_is_good_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Access([ANN], b"key")
    code = entry.login_code()
    later = time.monotonic() + auth.LINK_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert entry.redeem(code) is None
