"""Runs an engine's own Python with the right PATH."""

from __future__ import annotations

import os
from collections.abc import Mapping

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def child_command(python: str, child: str) -> list[str]:
    """Returns the command that runs one of our programs in that Python, without its folder on the import path
    (-P)."""
    return [python, "-P", child]


def child_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns `environ` with the PATH for an engine in this Python, and with this machine exempt from proxies."""
    return {**environ, "PATH": search_path(python, environ), **past_proxies(environ)}


def past_proxies(environ: Mapping[str, str], *machines: str) -> dict[str, str]:
    """Returns `no_proxy` and `NO_PROXY`, extended by this machine, by the master of several nodes and by `machines`.
    SGLang polls its own readiness with a library that uses `http_proxy`, and never starts if requests to 127.0.0.1 go
    to a proxy."""
    listed = [environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    there = [host.strip() for hosts in listed for host in hosts.split(",") if host.strip()]
    hosts = ",".join(
        dict.fromkeys([*there, *LOOPBACK, *filter(None, [environ.get("MASTER_ADDR")]), *machines])
    )
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def search_path(python: str, environ: Mapping[str, str]) -> str:
    """Returns the PATH for an engine in this Python. The folder of `python`, where pip puts programs, comes first, as
    in an active environment.

    Kernels are built by the program `ninja`. Links are not resolved: the target's folder may have no `ninja`.
    """
    before = environ.get("PATH", os.defpath)
    folder = os.path.dirname(python)
    return os.path.abspath(folder) + os.pathsep + before if folder else before
