"""Who may do what: roles, and the sessions of browsers. Knows no web framework."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

SESSION_SECONDS = 7 * 86400
LINK_SECONDS = 600


class Role(IntEnum):
    """Each may do all that those before it may."""

    VIEWER = 1  # look
    OPERATOR = 2  # cancel, retry, pause
    ADMIN = 3  # enqueue, schedules, settings: whoever can enqueue can run any command

    @property
    def word(self) -> str:
        return self.name.lower()


class Token(NamedTuple):
    name: str
    role: Role
    secret: str


class User(NamedTuple):
    name: str
    role: Role
    session: str | None = None  # of a browser; None if the request itself brought the token


class Access:
    """Knows the tokens, and which requests come from whoever has one."""

    def __init__(self, tokens: Sequence[Token], key: bytes) -> None:
        self._tokens = {token.name: token for token in tokens}
        self._key = key
        self._codes: dict[str, float] = {}  # until when they are good

    def by_token(self, secret: str) -> User | None:
        """Compares with all of them, in a time that tells nothing."""
        found: User | None = None
        for token in self._tokens.values():
            if hmac.compare_digest(_digest(secret), _digest(token.secret)):
                found = User(token.name, token.role)
        return found

    # -- sessions ----------------------------------------------------------------------------------------

    def session(self, user: User) -> str:
        """What a browser shows from now on: signed, so that it outlives this process, and ends with its token."""
        body = f"{user.name}.{round(time.time()) + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{body}.{self._sign(user.name, body)}"

    def by_session(self, cookie: str) -> User | None:
        body, _, signature = cookie.rpartition(".")
        name, _, rest = body.rpartition(".")[0].rpartition(".")
        token = self._tokens.get(name)
        if token is None or not hmac.compare_digest(signature.encode(), self._sign(name, body).encode()):
            return None
        return User(name, token.role, body.rpartition(".")[2]) if int(rest) > time.time() else None

    def csrf(self, user: User) -> str:
        """Proves that a form came from a page of ours: other sites can send our cookie, but not read it."""
        return self._sign(user.name, f"csrf {user.session}")

    def _sign(self, name: str, text: str) -> str:
        key = self._key + self._tokens[name].secret.encode()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    # -- the link that logs in once ----------------------------------------------------------------------

    def login_code(self) -> str:
        code = secrets.token_urlsafe(24)
        self._codes[code] = time.monotonic() + LINK_SECONDS
        return code

    def redeem(self, code: str) -> User | None:
        """Whoever has the most to say; the second time, or too late, a code is worth nothing."""
        known = next((one for one in self._codes if hmac.compare_digest(one.encode(), code.encode())), None)
        if known is None or self._codes.pop(known) < time.monotonic():
            return None
        token = max(self._tokens.values(), key=lambda token: token.role)
        return User(token.name, token.role)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
