"""Access to administration: with client keys only by the admin key, without keys only by the server's user; checked
before a body is read."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
import re
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from claw_base import peer
from claw_base.run_folder import records
from claw_base.run_folder.admin_key import FILE, create_key, known_key, read_key
from openclaw.common.address import admin_key_for
from openclaw.errors import ConfigError
from openclaw.http.limits import WRONG_KEYS_A_MINUTE, Guesses, network_of
from openclaw.versions.__main__ import main as versions
from tests.fakes.other_user import NOBODY, answer_to_another_user, needs_root
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

OPEN = {
    "/", "/healthz", "/readyz", "/health", "/metrics", "/status", "/docs", "/openapi.json", "/page/login", "/page/logout",
    "/page/static/{name:path}", "/page/events",
}  # fmt: skip
"""Routes without a key, or with their own test."""

SETFSUID = {"x86_64": 122, "aarch64": 151}
"""Number of the system call."""


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def place(gateway: RunningGateway) -> tuple[str, int]:
    url = httpx.URL(gateway.url)
    return url.host, url.port or 0


def routes(gateway: RunningGateway) -> Iterator[tuple[str, str]]:
    """Yields (method, path) of every route that needs a key, with values for the variables."""
    routers = [getattr(route, "original_router", None) for route in gateway.app.routes]
    for route in itertools.chain(
        gateway.app.routes, *(router.routes for router in routers if router is not None)
    ):
        if isinstance(route, APIRoute) and route.path not in OPEN:
            for method in sorted(route.methods - {"HEAD"}):
                yield method, re.sub(r"\{[^}]*\}", "7", route.path) + "?a=1&b=2&id=7"


def answer_before_the_body(gateway: RunningGateway, method: str, path: str) -> bytes:
    """Returns the first line of the answer to headers whose body does not arrive; empty if the server waits for
    it."""
    with socket.create_connection(place(gateway), timeout=2) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{{"
        connection.sendall(head.encode())
        try:
            return connection.recv(4096).partition(b"\r\n")[0]
        except TimeoutError:
            return b""


def test_no_route_reads_a_body_before_checking_the_key(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY, admin_key="admin")
    found = {route: answer_before_the_body(gateway, *route) for route in routes(gateway)}
    assert len(found) > 50
    seen = {route: line for route, line in found.items() if line.split(b" ")[1:2] not in ([b"401"], [b"303"])}
    assert seen == {}


def test_with_client_keys_a_local_address_needs_a_key_too(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway(api_key=KEY, admin_key=None)
    made = read_key(tmp_path / "buffer")
    assert made is not None and len(made) > 40
    assert stat.S_IMODE((tmp_path / "buffer" / FILE).stat().st_mode) == 0o600
    for method, path in routes(gateway):
        if path.startswith(("/admin", "/page")):
            answer = httpx.request(method, gateway.url + path)
            assert answer.status_code in (401, 303), (method, path)
    assert httpx.get(f"{gateway.url}/admin/export", headers=bearer(KEY)).status_code == 401
    assert httpx.get(f"{gateway.url}/").headers["location"].startswith("/page/login")
    assert httpx.get(f"{gateway.url}/admin/processes", headers=bearer(made)).status_code == 200
    assert httpx.get(f"{gateway.url}/", headers=bearer(made)).status_code == 200
    assert httpx.get(f"{gateway.url}/v1/models", headers=bearer(made)).status_code == 401


def test_a_generated_key_is_reused_and_a_configured_one_takes_precedence(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    keys = [
        start_gateway(
            api_keys="ada=a", api_key=None, admin_key=given, run_dir=str(tmp_path / "run")
        ).app.state.views.admin_key
        for given in (None, None, "given")
    ]
    assert keys[0] == keys[1] == read_key(tmp_path / "run") and keys[2] == "given"


def test_a_server_without_a_folder_has_a_random_key(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY, admin_key=None, enable_rl_intercept=False, rl_buffer_dir=None)
    assert httpx.get(f"{gateway.url}/admin/processes").status_code == 401


def test_a_linked_or_empty_key_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("known-to-others\n")
    for make in (lambda path: path.symlink_to(tmp_path / "elsewhere"), lambda path: path.touch()):
        path = tmp_path / FILE
        make(path)
        with pytest.raises(ConfigError, match="remove it"):
            create_key(tmp_path)
        path.unlink()


@needs_root
def test_another_users_key_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("known-to-others\n")
    os.chown(tmp_path / FILE, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="another user's"):
        create_key(tmp_path)


def test_programs_of_the_user_find_the_key_by_the_run_that_serves_an_address(
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "runs" / "mine"
    gateway = start_gateway(api_key=KEY, admin_key=None, run_dir=str(run))
    records.write_record(run, records.describe(os.getpid(), "gateway", "gateway", gateway.url, []))
    made = read_key(run)
    for url in (gateway.url, gateway.url + "/v1", gateway.url.replace("127.0.0.1", "localhost")):
        assert known_key(url, [run]) == admin_key_for(url, None, runs=tmp_path / "runs") == made
    for other in ("http://127.0.0.1:1", f"http://evil.example:{place(gateway)[1]}", "http://", "nonsense"):
        assert known_key(other, [run]) is None
    assert admin_key_for("https://evil.example", None, str(run)) is None
    assert admin_key_for(gateway.url, "given", str(run)) == "given"
    monkeypatch.setenv("RUN_DIR", str(run))
    assert versions(["--url", gateway.url]) == 0
    assert "live" in capsys.readouterr().out
    monkeypatch.setenv("RUN_DIR", str(tmp_path))
    assert versions(["--url", gateway.url]) == 2


@contextlib.contextmanager
def answering_user(user: int, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """A local server whose connections belong to this user; its URL."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def work() -> None:
        # threads of Linux have ids of their own, if the library's wrapper is avoided
        ctypes.CDLL(None).syscall(SETFSUID[platform.machine()], user)
        with contextlib.suppress(OSError):
            while True:
                made, _ = listener.accept()
                opened.append(made)
                made.recv(4096)
                made.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    opened: list[socket.socket] = []
    with socket.create_server((host, port), family=family) as listener:
        threading.Thread(target=work, daemon=True).start()
        yield f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for made in opened:
        made.close()


@needs_root
@pytest.mark.parametrize("is_given", [True, False])
def test_no_server_of_another_user_receives_the_key_of_a_run(tmp_path: Path, is_given: bool) -> None:
    run = tmp_path / "runs" / "mine"
    key, _ = create_key(run)
    given = str(run) if is_given else None
    for host in ("127.0.0.1", "::1"):
        with answering_user(NOBODY, host) as url:
            assert admin_key_for(url, None, given, tmp_path / "runs") is None, "the run has ended"
            local = f"http://127.0.0.1:{httpx.URL(url).port}"
            records.write_record(run, records.describe(os.getpid(), "gateway", "gateway", local, []))
            assert admin_key_for(url, None, given, tmp_path / "runs") is None, "or listens on another address"
            records.forget(run, "gateway")
    with answering_user(os.getuid()) as url:
        assert admin_key_for(url, None, given, tmp_path / "runs") == (key if is_given else None)
        records.write_record(run, records.describe(os.getpid(), "gateway", "gateway", url, []))
        assert admin_key_for(url, None, given, tmp_path / "runs") == key
    assert admin_key_for(url, None, given, tmp_path / "runs") is None, "nothing answers there"


@needs_root
def test_another_user_cannot_administrate_even_without_a_key(gateway: RunningGateway) -> None:
    assert peer.can_identify_users()
    for method, path in [*routes(gateway), ("GET", "/"), ("GET", "/page/events")]:
        if path.startswith(("/admin", "/page")) or path == "/":
            answer = answer_to_another_user(*place(gateway), method, path)
            assert answer.startswith(b"HTTP/1.1 403"), (method, path, answer[:200])
    assert httpx.get(f"{gateway.url}/admin/export").status_code == 200
    assert answer_to_another_user(*place(gateway), "GET", "/healthz").startswith(b"HTTP/1.1 200")


def test_if_the_kernel_cannot_identify_users_a_local_address_suffices(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "user_of", lambda client, server: None)
    assert httpx.get(f"{gateway.url}/admin/processes").status_code == 403
    monkeypatch.setattr(peer, "can_identify_users", lambda: False)
    assert httpx.get(f"{gateway.url}/admin/processes").status_code == 200


def test_spoofed_addresses_count_as_one_client(start_gateway: StartGateway) -> None:
    gateway = start_gateway(rate_limit=2)
    answers = [
        httpx.get(f"{gateway.url}/v1/models", headers={"X-Forwarded-For": f"192.0.2.{n}"}) for n in range(4)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]


def test_a_trusted_proxy_provides_the_client_address(start_gateway: StartGateway) -> None:
    gateway = start_gateway(rate_limit=1, trusted_proxies="127.0.0.1")

    def ask(*addresses: str) -> int:
        named = {"X-Forwarded-For": ", ".join(addresses)}
        return httpx.get(f"{gateway.url}/v1/models", headers=named).status_code

    assert [ask("192.0.2.1"), ask("192.0.2.2"), ask("192.0.2.3", "192.0.2.1")] == [200, 200, 429]
    assert (
        httpx.get(f"{gateway.url}/admin/processes", headers={"X-Forwarded-For": "127.0.0.1"}).status_code
        == 403
    )


def test_unauthenticated_logins_use_little_memory(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY)
    answer = httpx.post(f"{gateway.url}/page/login", content=b"key=" + b"x" * 20_000)
    assert answer.status_code == 413


def test_open_requests_to_the_page_and_to_administration_are_counted(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY, max_open_requests=2)
    head = b"POST /page/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nkey="
    waiting = [socket.create_connection(place(gateway), timeout=5) for _ in range(2)]
    for connection in waiting:
        connection.sendall(head)

    def status(path: str) -> int:
        return httpx.get(f"{gateway.url}{path}").status_code

    gateway.wait_for(lambda: status("/page/login") == 429)
    assert [status(path) for path in ("/admin/now", "/", "/healthz", "/v1/models")] == [429, 429, 200, 401]
    assert httpx.get(f"{gateway.url}/v1/models", headers=bearer(KEY)).status_code == 200
    for connection in waiting:
        connection.close()
    gateway.wait_for(lambda: status("/admin/now") == 401)


def test_guesses_of_the_admin_key_are_rate_limited(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY, admin_key="admin")
    with httpx.Client(base_url=gateway.url, headers={"Origin": gateway.url}) as browser:
        half = WRONG_KEYS_A_MINUTE // 2
        by_form = [browser.post("/page/login", data={"key": f"no-{n}"}).status_code for n in range(half)]
        by_header = [
            browser.get("/admin/now", headers=bearer(f"no-{n}")).status_code
            for n in range(WRONG_KEYS_A_MINUTE - half)
        ]
        assert by_form + by_header == [401] * WRONG_KEYS_A_MINUTE
        for answer in (
            browser.post("/page/login", data={"key": "admin"}),
            browser.get("/admin/now", headers=bearer("admin")),
        ):
            assert answer.status_code == 429
        assert browser.get("/admin/now").status_code == 401
        assert 1 <= int(answer.headers["retry-after"]) <= 60


@needs_root
def test_wrong_keys_of_another_user_do_not_lock_out_the_administrator(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=KEY, admin_key="admin")
    wrong = "Authorization: Bearer no\r\n"
    for _ in range(WRONG_KEYS_A_MINUTE):
        assert b" 401 " in answer_to_another_user(*place(gateway), "GET", "/admin/now", wrong)[:20]
    assert b" 429 " in answer_to_another_user(*place(gateway), "GET", "/admin/now", wrong)[:20]
    assert httpx.get(f"{gateway.url}/admin/now", headers=bearer("admin")).status_code == 200


def test_correct_keys_do_not_count_as_guesses() -> None:
    guesses = Guesses(2)
    for _ in range(10):
        guesses.check("192.0.2.1")
    guesses.count("192.0.2.1")
    guesses.check("192.0.2.1")


def test_addresses_available_to_one_client_share_a_limit() -> None:
    same: Any = {network_of(one) for one in ("2001:db8::1", "2001:db8::ffff:2%eth0", "2001:db8:0:0:1:2:3:4")}
    assert same == {"2001:db8::/64"} and network_of("2001:db8:1::1") not in same
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("testclient") == "testclient" and network_of("a:b") == "a:b"
