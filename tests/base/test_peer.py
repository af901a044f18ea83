"""The user at the other end of a local connection."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from claw_base import peer
from claw_base.peer import Address
from tests.fakes.other_user import NOBODY, connection_of_another_user, needs_root

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux's kernel")
WAYS = (peer._owner_from_kernel, peer._owner_from_table)

Way = Callable[[Address, Address], int | None]


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        made = socket.create_server((request.param, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {request.param} here: {error}")
    with made:
        yield made


@linux
@pytest.mark.parametrize("way", WAYS)
def test_the_user_of_a_connection_is_found_while_both_ends_are_open(
    way: Way, listener: socket.socket
) -> None:
    server = listener.getsockname()[:2]
    made = socket.create_connection(server)
    client = made.getsockname()[:2]
    with listener.accept()[0]:
        assert way(client, server) == os.getuid()
        assert way((client[0], client[1] ^ 1), server) is None
        made.close()
        assert way(client, server) is None


@linux
@pytest.mark.parametrize("way", WAYS)
def test_a_listener_on_a_disconnected_clients_port_is_not_taken_for_the_client(way: Way) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        assert way(other.getsockname(), server.getsockname()) is None


@linux
@pytest.mark.parametrize("way", WAYS)
def test_an_ipv6_socket_connected_to_an_ipv4_address_is_found(way: Way) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as made:
        try:
            made.connect((f"::ffff:{'127.0.0.1'}", server.getsockname()[1]))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        with server.accept()[0] as accepted:
            assert way(accepted.getpeername(), server.getsockname()) == os.getuid()


@needs_root
@pytest.mark.parametrize("way", WAYS)
def test_another_users_connection_is_distinguished_from_ours(way: Way) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with connection_of_another_user(host, port) as made, server.accept()[0]:
            assert way(made.getsockname(), (host, port)) == NOBODY


@linux
def test_an_address_pair_without_a_socket_has_no_user() -> None:
    for client, server in ((("127.0.0.1", 123), ("engine", None)), (("testclient", 5), ("testserver", 80))):
        assert peer.user_of(client, server) is None  # type: ignore[arg-type]


@linux
def test_availability_of_the_user_lookup_depends_on_the_kernel() -> None:
    assert peer.can_identify_users() is ("microsoft" not in os.uname().release.lower())
