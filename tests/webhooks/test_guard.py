"""Which receivers are allowed: all addresses of a name must be."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from jobqueue.webhooks import guard

INSIDE = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",  # noqa: S104 - refused
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "100.64.0.1",
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
    "192.88.99.1",
    "3fff::1",
    "3fff:fff::1",
    "5f00::1",
    "2001:2::1",
    "2001:10::1",
    "2001:2f::1",
    "2606:4700::5efe:8.8.8.8",
    "2606:4700::200:5efe:127.0.0.1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:808:808::1",  # a tunnel, wherever it leads
    "2001:0:4136:e378:8000:63bf:80ff:fffe",  # Teredo, to 127.0.0.1
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
)
OUTSIDE = ("93.184.215.14", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_that_may_lead_inside_is_refused(address: str) -> None:
    assert guard.is_inside(ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_is_not(address: str) -> None:
    assert not guard.is_inside(ip_address(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f000001", "2130706433", "127.1", "::1", "localhost", "0", "::ffff:127.0.0.1"])
def test_a_name_of_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(guard.ReceiverRefused, match="is not public; WEBHOOK_ALLOWED_HOSTS can allow it"):
        guard.addresses(host, 80, ())


def answers(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    def resolve(host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr("jobqueue.webhooks.guard.socket.getaddrinfo", resolve)


def test_one_bad_address_among_good_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "8.8.8.8", "10.0.0.1")
    with pytest.raises(guard.ReceiverRefused, match="has an address that is not public") as caught:
        guard.addresses("example.com", 443, ())
    assert "10.0.0.1" not in str(caught.value)  # who sees deliveries must not learn what names mean inside
    answers(monkeypatch, "8.8.8.8", "fe80::1%eth0")
    with pytest.raises(guard.ReceiverRefused):
        guard.addresses("example.com", 443, ())


def test_internal_hosts_are_allowed_by_name_suffix_address_or_network(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "10.0.0.1")
    for allowed in (("hooks.internal",), (".internal",), ("10.0.0.1",), ("10.0.0.0/8",)):
        assert guard.addresses("hooks.internal", 80, allowed) == ["10.0.0.1"]
    for allowed in (("internal",), ("192.168.0.0/16",), ("hooks.internal.example.com",)):
        with pytest.raises(guard.ReceiverRefused):
            guard.addresses("hooks.internal", 80, allowed)


def test_ports_of_other_services_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "8.8.8.8")
    assert [guard.addresses("example.com", port, ()) for port in (80, 443, 8443)] == [["8.8.8.8"]] * 3
    for port in (22, 25, 1023):
        with pytest.raises(guard.ReceiverRefused, match=f"port {port}"):
            guard.addresses("example.com", port, ())
    assert guard.addresses("example.com", 25, ("8.8.8.8",)) == ["8.8.8.8"]


def test_a_name_without_an_address_is_no_refusal() -> None:
    with pytest.raises(guard.Unresolved, match="has no address"):
        guard.addresses("no-such-host.invalid", 80, ())
    with pytest.raises(guard.Unresolved):
        guard.addresses("a" * 70 + ".example", 80, ())
