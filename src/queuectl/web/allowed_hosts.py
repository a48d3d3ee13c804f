"""The names by which the server can be reached."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable


class Hosts:
    """What may stand in a request's Host: only names that are ours, or a foreign page could reach us by a name of its
    own (DNS rebinding). A plain address cannot be such a name, so where others may come from, any will do."""

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        loopback = is_loopback(host)
        names = ["localhost", "127.0.0.1", "[::1]"] if loopback else ["localhost", socket.gethostname()]
        self._known = {f"{name}:{port}".lower() for name in (f"[{host}]" if ":" in host else host, *names)}
        if port == 80:  # which browsers leave out
            self._known |= {name.removesuffix(":80") for name in self._known}
        self._proxied = {name.lower() for name in more}  # with any port, if none is named
        self._any_address = not loopback

    def __contains__(self, said: str) -> bool:
        name, colon, port = said.lower().rpartition(":")
        if not (colon and port.isdigit()):
            name = said.lower()
        if said.lower() in self._known | self._proxied or name in self._proxied:
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
