"""Who may do what: roles, tokens, and the sessions of browsers. Knows no web framework."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from queuectl import newjob, private
from queuectl.errors import InvalidInput, did_you_mean

SHORTEST_TOKEN = 16
SESSION_SECONDS = 7 * 86400
TOKEN_VARIABLE = "QUEUECTL_TOKEN"
EXAMPLE = "one a line: NAME viewer|operator|admin TOKEN; or a token alone, for an admin"


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
        self._codes: set[str] = set()

    def by_token(self, secret: str) -> User | None:
        """Compares with all of them, in a time that tells nothing."""
        found = None
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
        self._codes.add(code)
        return code

    def redeem(self, code: str) -> User | None:
        """The admin whom the link was printed for; the second time it is worth nothing."""
        known = next((one for one in self._codes if hmac.compare_digest(one.encode(), code.encode())), None)
        if known is None:
            return None
        self._codes.discard(known)
        token = max(self._tokens.values(), key=lambda token: token.role)
        return User(token.name, token.role)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


# -- tokens ----------------------------------------------------------------------------------------------


def given_tokens(file: str | None) -> list[Token]:
    """From a file, and from the environment; never from the command line, which every user can read."""
    tokens = _read(file) if file else []
    if secret := os.environ.get(TOKEN_VARIABLE):
        tokens.append(Token("admin", Role.ADMIN, _strong(secret, f"${TOKEN_VARIABLE}")))
    for what in ("name", "secret"):
        values = [getattr(token, what) for token in tokens]
        if len(set(values)) < len(values):
            raise InvalidInput(f"two tokens have the same {'text' if what == 'secret' else what}", EXAMPLE)
    return tokens


def _read(file: str) -> list[Token]:
    try:
        mode = os.stat(file).st_mode
        with open(file, encoding="utf-8") as lines:
            found = [_token(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if _says(line)]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f'cannot read the tokens in "{file}": {why}', EXAMPLE) from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidInput(f'others can read the tokens in "{file}"', f"chmod 600 {newjob.quote([file])}")
    if not found:
        raise InvalidInput(f'there is no token in "{file}"', EXAMPLE)
    return found


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _token(line: str, where: str) -> Token:
    match line.split():
        case [secret]:
            return Token("admin", Role.ADMIN, _strong(secret, where))
        case [name, role, secret]:
            roles = {role.word: role for role in Role}
            if role not in roles:
                raise InvalidInput(f'{where}: there is no role "{role}"', did_you_mean(role, list(roles)))
            return Token(newjob.name("name", name), roles[role], _strong(secret, where))
    raise InvalidInput(f"{where}: this is not a token", EXAMPLE)


def _strong(secret: str, where: str) -> str:
    if len(secret) < SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable():
        raise InvalidInput(
            f"{where}: a token has at least {SHORTEST_TOKEN} printable ASCII characters",
            "make one: openssl rand -hex 32",
        )
    return secret


def own_token(folder: str) -> Token:
    """The admin's token of this queue, made when it is first needed; only its owner can read the file."""
    return Token("admin", Role.ADMIN, _kept(os.path.join(folder, "serve.token")))


def signing_key(folder: str) -> bytes:
    return _kept(os.path.join(folder, "serve.key")).encode()


def own_token_file(folder: str) -> str:
    return os.path.join(folder, "serve.token")


def _kept(path: str) -> str:
    private.make_folder(os.path.dirname(path))
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        with open(path, encoding="ascii") as kept:
            return kept.read().strip()
    with open(file, "w", encoding="ascii") as fresh:
        secret = secrets.token_hex(32)
        fresh.write(secret + "\n")
    return secret


class Hosts:
    """What may stand in a request's Host: only names that are ours, or a foreign page could reach us by a name of its
    own (DNS rebinding). A plain address cannot be such a name, so where others may come from, any will do."""

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        loopback = is_loopback(host)
        names = ["localhost", "127.0.0.1", "[::1]"] if loopback else ["localhost", socket.gethostname()]
        self._known = {f"{name}:{port}".lower() for name in (f"[{host}]" if ":" in host else host, *names)}
        self._known |= {name.lower() for name in more}
        self._any_address = not loopback

    def __contains__(self, said: str) -> bool:
        name, colon, port = said.lower().rpartition(":")
        if not (colon and port.isdigit()):
            name = said.lower()
        if said.lower() in self._known or name in self._known:
            return True
        return self._any_address and _is_address(name)


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
