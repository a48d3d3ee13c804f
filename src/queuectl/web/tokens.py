"""Where tokens come from: a file, the environment, or the queue's own folder."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress

from queuectl.client.http_client import TOKEN_VARIABLE
from queuectl.errors import InvalidInput, Untrusted, did_you_mean
from queuectl.jobs import job_spec
from queuectl.system import private_files
from queuectl.web.auth import Role, Token

SHORTEST_TOKEN = 16
LARGEST_FILE = 1 << 20  # bytes: some names, such as /dev/zero, have no end
EXAMPLE = "one a line: NAME viewer|operator|admin TOKEN; or a token alone, for an admin"


def given_tokens(file: str | None) -> list[Token]:
    """From a file, and from the environment; never from the command line, which every user can read."""
    tokens = [] if file is None else _read(file)
    if secret := os.environ.get(TOKEN_VARIABLE):
        tokens.append(Token("admin", Role.ADMIN, _strong(secret, f"${TOKEN_VARIABLE}")))
    for what in ("name", "secret"):
        values = [getattr(token, what) for token in tokens]
        if len(set(values)) < len(values):
            raise InvalidInput(f"two tokens have the same {'text' if what == 'secret' else what}", EXAMPLE)
    return tokens


def _read(file: str) -> list[Token]:
    try:
        with open(private_files.open_given(file), "rb") as source:
            if stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o077:
                raise InvalidInput(f'others can read the tokens in "{file}"', f"chmod 600 {job_spec.quote([file])}")
            read = source.read(LARGEST_FILE + 1)
            lines = read.decode().splitlines()
    except Untrusted:
        raise
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f'cannot read the tokens in "{file}": {why}', EXAMPLE) from None
    if len(read) > LARGEST_FILE:
        raise InvalidInput(f'the file "{file}" is larger than {LARGEST_FILE >> 20} MiB', EXAMPLE)
    found = [_token(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if _says(line)]
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
            return Token(job_spec.name("name", name), roles[role], _strong(secret, where))
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
    private_files.make_folder(os.path.dirname(path))
    if not os.path.lexists(path):
        fresh = f"{path}.{secrets.token_hex(4)}"
        create = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with open(private_files.open_file(fresh, create), "w", encoding="ascii") as written:
                written.write(secrets.token_hex(32) + "\n")
                written.flush()
                os.fsync(written.fileno())
            os.link(fresh, path)
        except (FileExistsError, FileNotFoundError):  # another server has made it just now, and removed our draft
            pass
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
    if os.lstat(path).st_nlink > 1:
        _remove_drafts(path)
    with open(private_files.open_file(path, os.O_RDONLY, secret=True), encoding="ascii", errors="replace") as kept:
        secret = kept.read().strip()
    if len(secret) < SHORTEST_TOKEN:
        raise InvalidInput(
            f'there is no secret in "{path}"', f"remove it: rm {job_spec.quote([path])}; a new one is made"
        )
    return secret


def _remove_drafts(path: str) -> None:
    """Another server has put it into place and not yet removed its draft, or was killed before it could."""
    folder, name = os.path.split(path)
    for draft in os.listdir(folder):
        if draft.startswith(f"{name}."):
            with suppress(OSError):
                os.unlink(os.path.join(folder, draft))
