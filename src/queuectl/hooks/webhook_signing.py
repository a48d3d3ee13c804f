"""Webhooks as https://www.standardwebhooks.com has them: secrets, signatures, and where one may lead. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from queuectl.errors import InvalidInput

PREFIX = "whsec_"
SHORTEST_SECRET, LONGEST_SECRET = 24, 64  # bytes
LONGEST_URL = 2000
PORTS = {"http": 80, "https": 443}
PRIVATE_HINT = "if it is meant to go there, say so: --allow-private"

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # the last four bytes are where it really goes
_GLOBAL = ipaddress.IPv6Network("2000::/3")
_TUNNELS = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("2002::/16"))  # Teredo and 6to4
# Not for everybody, whatever `is_global` says: assigned to protocols, and the host side of an Azure machine.
_SPECIAL = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("168.63.129.16/32"))


class Target(NamedTuple):
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    path: str  # with what follows it

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def target(url: str) -> Target:
    """The parts of a URL that may be posted to."""
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > LONGEST_URL:
        raise InvalidInput("this URL is too long, or has characters that no URL has", "percent-encode them")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise InvalidInput(f"this is no URL: {error}", "for example https://example.com/hook") from None
    if parts.scheme not in PORTS:
        raise InvalidInput(f'a webhook cannot be posted to "{parts.scheme}"', "give an address with http or https")
    if not host or port == 0 or "%" in host:
        raise InvalidInput("this URL names no host", "for example https://example.com/hook")
    if "@" in parts.netloc:
        raise InvalidInput("this URL has a user or a password in it", "leave it out; posts are signed with a secret")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path)


def shown(url: str) -> str:
    """A URL for a list: what follows the host may be a secret in itself."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if parts.path.strip("/") or parts.query else "")


# -- addresses -------------------------------------------------------------------------------------------


def is_public(address: str) -> bool:
    """Is this address one of the public internet, by whichever detour it is written?"""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or (ipaddress.IPv4Address(ip.packed[-4:]) if ip in _NAT64 else None)
        if inner is None:
            return ip in _GLOBAL and ip.is_global and not any(ip in tunnel for tunnel in _TUNNELS)
        ip = inner
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL)


def refuse_private(host: str, addresses: list[str]) -> None:
    """Raise unless all of a host's addresses are public."""
    for address in addresses:
        if not is_public(address):
            where = f'"{host}"' if host == address else f'"{host}" ({address})'
            raise InvalidInput(f"{where} is a private address", PRIVATE_HINT)


def refuse_plainly_private(host: str) -> None:
    """Raise if it takes no look-up to see that a host is private."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith((".localhost", ".localdomain")):
        raise InvalidInput(f'"{host}" is this machine', PRIVATE_HINT)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    refuse_private(host, [host])


# -- signatures ------------------------------------------------------------------------------------------


def secret_from(random: bytes) -> str:
    return PREFIX + base64.b64encode(random).decode()


def checked_secret(text: str) -> str:
    """A secret that somebody brings along."""
    try:
        size = len(_key(text)) if text.startswith(PREFIX) else 0
    except (binascii.Error, ValueError):
        size = 0
    if not SHORTEST_SECRET <= size <= LONGEST_SECRET:
        hint = f"write {PREFIX} and {SHORTEST_SECRET} to {LONGEST_SECRET} random bytes in base64"
        raise InvalidInput("this is no secret for webhooks", hint)
    return text


def headers(id: str, seconds: int, body: bytes, secret: str) -> dict[str, str]:
    """What goes with a body. `id` is the same each time it is tried, `seconds` are those of this try."""
    return {
        "content-type": "application/json",
        "user-agent": "queuectl",
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signature(id, seconds, body, secret),
    }


def signature(id: str, seconds: int, body: bytes, secret: str) -> str:
    signed = hmac.new(_key(secret), f"{id}.{seconds}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed.digest()).decode()


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
