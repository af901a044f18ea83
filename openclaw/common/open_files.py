"""Raises this process's limit of open files, and thus of connections."""

from __future__ import annotations

import contextlib

LIMIT = 65_536


def raise_open_file_limit() -> None:
    """Raises the limit as far as the system allows, up to `LIMIT`: the usual limits are 256 on macOS and 1,024 on
    Linux, and connections beyond it are closed unread. Child processes inherit it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = LIMIT if hard == resource.RLIM_INFINITY else min(LIMIT, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may refuse
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
