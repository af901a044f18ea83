"""Connections that detect the loss of the other machine."""

from __future__ import annotations

import socket

from claw_base.connections import watched_socket


def test_a_connection_probes_a_silent_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        [address] = socket.getaddrinfo(*server.getsockname(), type=socket.SOCK_STREAM)
        with watched_socket(address) as made:
            made.connect(address[4])
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
