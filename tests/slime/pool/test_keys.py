"""Tests that a pool accepts its user's programs only: other accounts have no key, and web pages are rejected."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from claw_base.errors import ConfigError
from slime.agents import Task
from slime.pool import PoolEnvironment, keys
from slime.pool.__main__ import PoolSettings, app_of
from slime.pool.keys import is_here, key_file_of, key_of, store_key
from slime.pool.service import pool_app
from tests import ROOT
from tests.slime.agents.counter import Counter

GUESS = f"{ROOT}/slime/examples/my_agent/guess.py:GuessNumber"
POSTS = ("/allocate", "/heartbeat", "/reset", "/step", "/exec_tool", "/evaluate", "/close")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FOLDER", tmp_path)


def ask(app: object, path: str, method: str = "POST", **headers: str) -> int:
    async def go() -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:18081") as http:
            content = None if "content_type" in headers else b"{}"
            kind = {} if "content_type" in headers else {"content-type": "application/json"}
            return (
                await http.request(method, path, content=content or b"{}", headers=kind | given)
            ).status_code

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:18081"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:18081"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"authorization": "Bearer other"}, 401),
        ({"authorization": "key"}, 401),
        ({}, 401),
    ],
)
@pytest.mark.parametrize("path", POSTS)
def test_other_users_and_web_pages_are_rejected_by_every_route(
    headers: dict[str, str], status: int, path: str
) -> None:
    given = {} if "authorization" in headers or not headers else {"authorization": "Bearer key"}
    for app in (
        pool_app(Counter, key="key", only_here=True),
        app_of(PoolSettings(pools="http://127.0.0.1:1"), "key"),
    ):
        assert ask(app, path, **headers, **given) == status


def test_read_only_routes_except_health_need_the_key() -> None:
    app = pool_app(Counter, key="key", only_here=True)
    assert ask(app, "/status", "GET") == 401 and ask(app, "/status", "GET", authorization="Bearer key") == 200
    assert ask(app, "/healthz", "GET") == 200 and ask(app, "/healthz", "GET", host="evil.example") == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "localhost", "pool"])
def test_a_loopback_pool_accepts_addresses_and_local_names(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["evil.example", "a.b", "127.0.0.1.evil.example", ""])
def test_a_loopback_pool_rejects_internet_host_names(host: str) -> None:
    assert not is_here(host)


def test_a_key_file_is_private_and_new_at_each_start() -> None:
    place = store_key("first", 18081)
    store_key("second", 18081)
    assert key_of("http://127.0.0.1:18081") == key_of("http://localhost:18081/x") == "second"
    assert key_of("http://10.0.0.1:18081") is None and key_of("http://127.0.0.1:18082") is None
    assert stat.S_IMODE(place.stat().st_mode) == 0o600 and stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert [one.name for one in place.parent.iterdir()] == ["18081.key"]


def test_another_users_folder_is_neither_written_nor_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_key("mine", 18081)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    theirs = key_file_of(18081)
    theirs.parent.mkdir()
    theirs.write_text("planted")
    assert key_of("http://127.0.0.1:18081") is None
    with pytest.raises(ConfigError, match="another user"):
        store_key("mine", 18081)


def test_a_link_in_place_of_the_key_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    key_file_of(1).parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        store_key("mine", 1)


@pytest.fixture
def served() -> Iterator[tuple[str, str]]:
    """Yields a pool as started by hand: its address, and its output."""
    command = [sys.executable, "-m", "slime.pool", "--environment", GUESS, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.split()[2].rstrip(","), line
        process.terminate()


def test_a_pool_without_a_key_file_creates_a_key_for_clients_of_its_user(
    served: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    url, line = served
    place = Path(line.rstrip().rpartition(" ")[2])
    key = place.read_text()
    assert len(key) > 30 and key not in line
    assert httpx.post(f"{url}/allocate", json={"task_key": "t"}).status_code == 401

    async def play() -> bool:
        environment = PoolEnvironment(url)
        start = await environment.reset(Task("Guess.", "5"))
        await environment.close()
        return bool(start.messages)

    assert asyncio.run(play())
    place.unlink()
