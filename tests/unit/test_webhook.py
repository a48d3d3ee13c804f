"""Webhooks: signatures that others verify, secrets, and which addresses are open to everybody."""

from __future__ import annotations

import base64

import pytest

from queuectl.errors import InvalidInput
from queuectl.hooks import webhook_signing

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_signature_is_the_one_that_others_compute() -> None:
    """A message of the reference implementation's own tests."""
    signed = webhook_signing.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', SECRET)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_covers_id_time_and_body() -> None:
    original = webhook_signing.signature("id", 7, b"body", SECRET)
    others = [("ID", 7, b"body"), ("id", 8, b"body"), ("id", 7, b"bodY")]
    assert original not in [webhook_signing.signature(*parts, SECRET) for parts in others]
    assert webhook_signing.signature("id", 7, b"body", webhook_signing.secret_from(bytes(32))) != original


def test_the_headers_say_what_was_signed() -> None:
    headers = webhook_signing.headers("h:job:abc", 1614265330, b"{}", SECRET)
    assert headers == {
        "content-type": "application/json",
        "user-agent": "queuectl",
        "webhook-id": "h:job:abc",
        "webhook-timestamp": "1614265330",
        "webhook-signature": webhook_signing.signature("h:job:abc", 1614265330, b"{}", SECRET),
    }


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_good_secret_is_taken(size: int) -> None:
    secret = webhook_signing.secret_from(bytes(range(size)))
    assert webhook_signing.checked_secret(secret) == secret
    assert base64.b64decode(secret.removeprefix("whsec_")) == bytes(range(size))


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "secret", SECRET.removeprefix("whsec_"), SECRET[:-1], SECRET + "\n", "whsec_" + "é" * 32,
     "whsec_" + "A" * 16 + "-_" * 8, webhook_signing.secret_from(bytes(23)), webhook_signing.secret_from(bytes(65))],
)  # fmt: skip
def test_a_bad_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        webhook_signing.checked_secret(text)
    assert "random bytes in base64" in refused.value.hint
    assert not text or text not in str(refused.value) + refused.value.hint or text == "whsec_" or text == "secret"


# -- where to --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target", "authority"),
    [
        ("https://example.com", ("https", "example.com", 443, "/"), "example.com"),
        ("HTTP://Example.COM:80/a?b=c#d", ("http", "example.com", 80, "/a?b=c"), "example.com"),
        ("http://example.com:443/", ("http", "example.com", 443, "/"), "example.com:443"),
        ("https://[2001:db8::1]:8443/x", ("https", "2001:db8::1", 8443, "/x"), "[2001:db8::1]:8443"),
        ("https://example.com?x=%20", ("https", "example.com", 443, "/?x=%20"), "example.com"),
    ],
)
def test_the_parts_of_an_address(url: str, target: tuple[object, ...], authority: str) -> None:
    found = webhook_signing.target(url)
    assert tuple(found) == target
    assert found.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "file:///etc/passwd", "gopher://x/", "//example.com/", "https:///path", "https://",
        "https://user:pass@example.com/", "https://@example.com/", "https://example.com:99999/",
        "https://example.com:0/", "https://example.com:x/", "https://[::1/", "https://ex ample.com/",
        "https://example.com/\r\nX: y", "https://exämple.com/", "https://[fe80::1%25eth0]/",
        "https://example.com/" + "x" * 2000,
    ],
)  # fmt: skip
def test_what_cannot_be_posted_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        webhook_signing.target(url)
    assert refused.value.hint
    assert "pass@" not in str(refused.value)


def test_a_list_does_not_show_what_may_be_a_secret() -> None:
    assert webhook_signing.shown("https://example.com/services/T0/B0/token") == "https://example.com/…"
    assert webhook_signing.shown("https://example.com:8443") == "https://example.com:8443"
    assert webhook_signing.shown("https://example.com/?key=1") == "https://example.com/…"


PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.0",
    "169.253.255.255", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip
PRIVATE = [
    # IPv4
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    # IPv6
    "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1",
    "2001:db8::1", "2001:10::1", "4000::1",
    # IPv4 in IPv6
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "::a00:1",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1::808:808",
    "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "::ffff:0:127.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert webhook_signing.is_public(address)
    webhook_signing.refuse_private("example.com", [address])
    webhook_signing.refuse_plainly_private(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_leads_inside_is_not_however_it_is_written(address: str) -> None:
    assert not webhook_signing.is_public(address)
    with pytest.raises(InvalidInput) as refused:
        webhook_signing.refuse_private("example.com", ["8.8.8.8", address])
    assert "--allow-private" in refused.value.hint
    with pytest.raises(InvalidInput):
        webhook_signing.refuse_plainly_private(address)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    with pytest.raises(InvalidInput):
        webhook_signing.refuse_plainly_private(host)


def test_other_names_are_looked_up_when_they_are_needed() -> None:
    for host in ("example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1.nip.example"):
        webhook_signing.refuse_plainly_private(host)
