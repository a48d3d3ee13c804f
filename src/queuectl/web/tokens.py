"""Where tokens come from: a file, the environment, or the queue's own folder."""

from __future__ import annotations

import os
import secrets
import stat

from queuectl import newjob, private
from queuectl.errors import InvalidInput, did_you_mean
from queuectl.web.access import Role, Token

SHORTEST_TOKEN = 16
TOKEN_VARIABLE = "QUEUECTL_TOKEN"
EXAMPLE = "one a line: NAME viewer|operator|admin TOKEN; or a token alone, for an admin"


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


def own_token(folder: str) -> tuple[Token, str]:
    """The admin's token of this queue, made when it is first needed, and the file that only its owner can read."""
    path = os.path.join(folder, "token")
    return Token("admin", Role.ADMIN, _kept(path)), path


def signing_key(folder: str) -> bytes:
    return _kept(os.path.join(folder, "key")).encode()


def _kept(path: str) -> str:
    """The secret in this file. It comes into its place whole, or not at all: half of one would be easy to guess."""
    private.make_folder(os.path.dirname(path))
    if not os.path.exists(path):
        fresh = f"{path}.{secrets.token_hex(4)}"
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(file, "w", encoding="ascii") as written:
                written.write(secrets.token_hex(32) + "\n")
                written.flush()
                os.fsync(written.fileno())
            os.link(fresh, path)
        except FileExistsError:  # by another server, just now
            pass
        finally:
            os.unlink(fresh)
    with open(path, encoding="ascii", errors="replace") as kept:
        secret = kept.read().strip()
    if len(secret) < SHORTEST_TOKEN:
        raise InvalidInput(
            f'there is no secret in "{path}"', f"remove it: rm {newjob.quote([path])}; a new one is made"
        )
    return secret
