"""Calls an engine's own Python, and sets the PATH in which it finds programs."""

from __future__ import annotations

import os
from collections.abc import Mapping

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def child_command(python: str, child: str) -> list[str]:
    """Runs a program of ours in that Python, where the names of its neighbours hide no package (-P)."""
    return [python, "-P", child]


def child_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the PATH of an engine that runs in this Python, and with no proxy between it and this machine."""
    return {**environ, "PATH": search_path(python, environ), **past_proxies(environ)}


def past_proxies(environ: Mapping[str, str], *machines: str) -> dict[str, str]:
    """`no_proxy` and `NO_PROXY` with this machine in them, with the master of several nodes and with other `machines`.
    SGLang asks itself whether it is ready, with a library that heeds `http_proxy`, and never starts if a proxy is to
    fetch 127.0.0.1."""
    listed = [environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    there = [host.strip() for hosts in listed for host in hosts.split(",") if host.strip()]
    hosts = ",".join(
        dict.fromkeys([*there, *LOOPBACK, *filter(None, [environ.get("MASTER_ADDR")]), *machines])
    )
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def search_path(python: str, environ: Mapping[str, str]) -> str:
    """Returns PATH for an engine that runs in this Python. The folder of `python`, where pip puts programs, comes first,
    as in an active environment.

    Kernels are built by the program `ninja`. A link is not followed: its target's folder may have no `ninja`.
    """
    before = environ.get("PATH", os.defpath)
    folder = os.path.dirname(python)
    return os.path.abspath(folder) + os.pathsep + before if folder else before
