"""Decide by the current addresses of a receiver's name whether messages may be sent to it.

A name is resolved once. All of its addresses are checked, and the connection is made to one of them. A later change
of the name has no effect.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from jobqueue.core.webhook_rules import is_named, networks

# Networks that some versions of the standard library count as public.
INSIDE = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local; the clouds' metadata at 169.254.169.254
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",
            "224.0.0.0/3",
            "168.63.129.16/32",  # a cloud's host, although its number is public
            "fc00::/7",  # includes a cloud's metadata at fd00:ec2::254
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
            "64:ff9b:1::/48",  # NAT64 of a local network
            "2001::/32",  # Teredo; like 6to4, a tunnel to any address
            "2001:2::/48",  # benchmarks, and identifiers that are not locators
            "2001:10::/28",
            "2001:20::/28",
            "2002::/16",
            "3fff::/20",  # documentation
            "5f00::/16",  # segments of a local network
            "100::/64",
            "2001:db8::/32",
        ),
    )
)
NAT64 = ip_network("64:ff9b::/96")
COMPATIBLE = ip_network("::/96")
ISATAP = (0x00005EFE, 0x02005EFE)  # the third quarter of an address that contains one of IPv4: a tunnel inside of a network
PORTS = (80, 443)
FIRST_FREE_PORT = 1024

Address = IPv4Address | IPv6Address


class ReceiverRefused(Exception):
    """The error that messages may not be sent to a receiver, with the reason."""


class Unresolved(Exception):
    """The error that a name has no address now."""


def addresses(host: str, port: int, allowed: tuple[str, ...]) -> list[str]:
    """Return the addresses of a receiver after all of them were checked; raise `ReceiverRefused` or `Unresolved`."""
    addresses_found = _resolve(host, port)
    if is_named(host, allowed):
        return [text for text, _ in addresses_found]
    inner = networks(allowed)
    let_in = [any(address in network for network in inner) for _, address in addresses_found]
    for (_, address), is_allowed in zip(addresses_found, let_in, strict=True):
        if not is_allowed and is_inside(address):
            # The text omits the address: otherwise, viewers of deliveries could resolve names of this network.
            raise ReceiverRefused(f"{host} has an address that is not public; WEBHOOK_ALLOWED_HOSTS can allow it")
    if port < FIRST_FREE_PORT and port not in PORTS and not all(let_in):
        raise ReceiverRefused(
            f"port {port} is not a port of webhooks (80, 443, and from 1024 on); WEBHOOK_ALLOWED_HOSTS can allow the host"
        )
    return [text for text, _ in addresses_found]


def literal_problem(url: str, allowed: tuple[str, ...]) -> str:
    """Return why a URL that contains an address, in any notation, is rejected; "" if it is allowed or contains a name."""
    host = urlsplit(url).hostname or ""
    try:
        address: Address = ip_address(host.partition("%")[0]) if ":" in host else IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError, UnicodeError):
        return ""
    if is_named(host, allowed) or any(address in network for network in networks(allowed)) or not is_inside(address):
        return ""
    return f"{host} is an address that is not public; WEBHOOK_ALLOWED_HOSTS can allow it"


def is_inside(address: Address) -> bool:
    """Return whether an address can lead inside of a network; this includes addresses that contain another address."""
    carried = _carried(address)
    if carried is not None:
        return is_inside(carried)
    if isinstance(address, IPv6Address) and int(address) >> 32 & 0xFFFFFFFF in ISATAP:
        return True
    return (
        not address.is_global
        or address.is_multicast
        or address.is_reserved
        or any(address in network for network in INSIDE if network.version == address.version)
    )


def _carried(address: Address) -> Address | None:
    if not isinstance(address, IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in NAT64 or (address in COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _resolve(host: str, port: int) -> list[tuple[str, Address]]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unresolved(f"{host} has no address: {error}") from error
    texts = dict.fromkeys(str(answer[4][0]) for answer in answers)
    if not texts:
        raise Unresolved(f"{host} has no address")
    return [(text, ip_address(text.partition("%")[0])) for text in texts]
