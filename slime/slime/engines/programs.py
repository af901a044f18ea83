"""Runs programs in an engine's Python with the right PATH."""

from __future__ import annotations

import os
from collections.abc import Mapping

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def child_command(python: str, child: str) -> list[str]:
    """Returns the command that runs a program with that Python, without its folder on the import path (-P)."""
    return [python, "-P", child]


def child_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns `environ` with a PATH for an engine in this Python, and without proxies for this machine."""
    return {**environ, "PATH": search_path(python, environ), **past_proxies(environ)}


def past_proxies(environ: Mapping[str, str], *machines: str) -> dict[str, str]:
    """Returns `no_proxy` and `NO_PROXY`, extended by this machine, the master of several nodes, and
    `machines`.

    SGLang polls its own readiness with a library that uses `http_proxy`, and never starts if requests to
    127.0.0.1 go to a proxy.
    """
    listed = [environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    there = [host.strip() for hosts in listed for host in hosts.split(",") if host.strip()]
    hosts = ",".join(
        dict.fromkeys([*there, *LOOPBACK, *filter(None, [environ.get("MASTER_ADDR")]), *machines])
    )
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def search_path(python: str, environ: Mapping[str, str]) -> str:
    """Returns the PATH for an engine in this Python: first the folder of `python`, where pip installs
    programs.

    Kernels are built by the program `ninja`. Links are not resolved, because the target's folder may have no
    `ninja`.
    """
    before = environ.get("PATH", os.defpath)
    folder = os.path.dirname(python)
    return os.path.abspath(folder) + os.pathsep + before if folder else before
