"""`python -m slime.plan.master ADDRESS PORT RANK`: prints the reason if several machines cannot connect at that address.

The first machine (rank 0) starts Ray's head there; the others connect to it. Needs no packages.
"""

from __future__ import annotations

import errno
import socket
import sys

from claw_base.ports import bind_error


def problem(address: str, port: int, first: bool) -> str:
    """Returns the reason; "" if there is none. `first`: whether this is the machine that listens."""
    try:
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return (
            f"MASTER_ADDR={address} is neither an IP address nor a host name that this machine can resolve "
            f"({error.strerror}): set it to the IP address of the first machine"
        )
    refused = bind_error(str(addresses[0][4][0]), port) if first else None
    if refused is None:
        return ""
    if refused.errno == errno.EADDRNOTAVAIL:
        return (
            f"MASTER_ADDR={address} is not an address of this machine, which is the first (NODE_RANK=0): set the "
            "address of this machine that the other machines can reach"
        )
    reason = refused.strerror or refused
    return f"RAY_PORT={port} on {address} cannot be used ({reason}): free it, or set another RAY_PORT on all machines"


if __name__ == "__main__":
    if reason := problem(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "0"):
        print(reason)
