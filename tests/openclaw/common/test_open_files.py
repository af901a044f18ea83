from __future__ import annotations

import sys

import pytest

from openclaw.common.open_files import LIMIT, raise_open_file_limit


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_server_accepts_as_many_connections_as_the_system_allows() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raise_open_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1] and soft == (LIMIT if hard == resource.RLIM_INFINITY else min(LIMIT, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
