"""Which receivers may be spoken to, by the addresses that their names have."""

import socket
from collections.abc import Callable
from ipaddress import ip_address

import pytest

from jobqueue.webhooks import guard

INSIDE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",  # a cloud's metadata, too
    "127.0.0.1",
    "127.8.8.8",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "100::1",
    "2001:0:53aa:64c:0:0:80ff:fffe",  # Teredo
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
OUTSIDE = ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let every name have these addresses."""

    def give(*texts: str) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 80)) for text in texts]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)

    return give


@pytest.mark.parametrize("text", INSIDE)
def test_an_address_that_leads_inside_is_known_and_refused(text: str, resolved: Callable[..., None]) -> None:
    assert guard.is_inside(ip_address(text))
    resolved(text)
    with pytest.raises(guard.Refused, match="not public"):
        guard.addresses("hooks.example", 443, ())


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_public_address_is_let_pass(text: str, resolved: Callable[..., None]) -> None:
    assert not guard.is_inside(ip_address(text))
    resolved(text)
    assert guard.addresses("hooks.example", 443, ()) == [text]


def test_one_address_inside_among_public_ones_is_enough_to_refuse(resolved: Callable[..., None]) -> None:
    resolved("8.8.8.8", "10.0.0.1")
    with pytest.raises(guard.Refused):
        guard.addresses("hooks.example", 443, ())


@pytest.mark.parametrize("text", ["0x7f000001", "2130706433", "127.1", "localhost", "::1", "0"])
def test_another_way_to_write_loopback_is_no_way_in(text: str) -> None:
    with pytest.raises((guard.Refused, guard.Unresolved)):
        guard.addresses(text, 80, ())


def test_a_scope_in_an_address_hides_nothing(resolved: Callable[..., None]) -> None:
    resolved("fe80::1%lo")
    with pytest.raises(guard.Refused):
        guard.addresses("hooks.example", 443, ())


def test_networks_and_names_that_are_allowed_are_let_pass_and_nothing_beside(resolved: Callable[..., None]) -> None:
    resolved("10.0.0.5")
    assert guard.addresses("hooks.internal", 80, ("10.0.0.0/24",)) == ["10.0.0.5"]
    assert guard.addresses("HOOKS.internal.", 80, ("hooks.internal",)) == ["10.0.0.5"]
    assert guard.addresses("a.b.internal", 80, (".internal",)) == ["10.0.0.5"]
    for allowed in [("10.0.1.0/24",), ("ooks.internal",), ("hooks.intern",), (".hooks.internal",)]:
        with pytest.raises(guard.Refused):
            guard.addresses("hooks.internal", 80, allowed)
    resolved("10.0.0.5", "127.0.0.1")
    with pytest.raises(guard.Refused):
        guard.addresses("hooks.internal", 80, ("10.0.0.0/24",))


def test_a_port_of_other_services_is_refused_unless_the_receiver_is_allowed(resolved: Callable[..., None]) -> None:
    resolved("8.8.8.8")
    for port in (1, 22, 25, 143, 1023):
        with pytest.raises(guard.Refused, match="port"):
            guard.addresses("hooks.example", port, ())
    for port in (80, 443, 1024, 8443):
        assert guard.addresses("hooks.example", port, ())
    assert guard.addresses("hooks.example", 22, ("hooks.example",))


def test_a_name_without_an_address_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(guard.Unresolved, match=r"hooks\.example has no address"):
        guard.addresses("hooks.example", 443, ())
