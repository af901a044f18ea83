"""The nginx configuration of instructions/operations.md, and the shortest usual one, with a real nginx."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from claw_base.ports import free_port
from openclaw.http.browser import COOKIE
from tests import ROOT
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx-light)"
)

SHORTEST = "server { listen 443 ssl; location / { proxy_pass http://127.0.0.1:30000; } }"
HELLO = [{"role": "user", "content": "hello"}]
CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; {temporary} {server} }}
"""


def documented() -> str:
    text = (ROOT / "instructions" / "operations.md").read_text()
    found = re.search(r"```nginx\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(params=["documented", "shortest"])
def server(request: pytest.FixtureRequest) -> str:
    return documented() if request.param == "documented" else SHORTEST


@pytest.fixture
def gateway(start_gateway: StartGateway) -> RunningGateway:
    return start_gateway(api_key=KEY, admin_key="admin")


@pytest.fixture
def outside(server: str, gateway: RunningGateway, tmp_path: Path) -> Iterator[str]:
    """Yields the URL of nginx, without TLS, which does not matter here."""
    port = free_port()
    server = server.replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    server = re.sub(r"ssl_certificate(_key)? .*;", "", server).replace("http://127.0.0.1:30000", gateway.url)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    config = tmp_path / "nginx.conf"
    config.write_text(CONFIG.format(folder=tmp_path, temporary=temporary, server=server))
    process = subprocess.Popen(
        [str(NGINX), "-p", str(tmp_path), "-c", str(config)], stderr=subprocess.PIPE, text=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                httpx.get(f"{url}/healthz")
                break
            except httpx.ConnectError:
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_administration_and_the_page_reject_proxied_requests(outside: str) -> None:
    for path in ("/admin/now", "/admin/export", "/admin/processes", "/page/sessions", "/"):
        for headers in ({}, {"Authorization": f"Bearer {KEY}"}, {"Host": "localhost"}):
            answer = httpx.get(outside + path, headers=headers)
            assert answer.status_code == 401 or answer.headers["location"].startswith("/page/login"), path
    assert httpx.get(f"{outside}/admin/now", headers={"Authorization": "Bearer admin"}).status_code == 200


def test_clients_with_a_key_can_use_the_proxy(outside: str, gateway: RunningGateway) -> None:
    gateway.says("hello there")
    body = {"messages": HELLO, "stream": True}
    assert httpx.post(f"{outside}/v1/chat/completions", json=body).status_code == 401
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.stream("POST", f"{outside}/v1/chat/completions", json=body, headers=headers) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("server", ["documented"], indirect=True)
def test_users_can_log_in_through_the_proxy(outside: str) -> None:
    with httpx.Client(
        base_url=outside, headers={"Origin": outside, "Sec-Fetch-Site": "same-origin"}
    ) as browser:
        done = browser.post("/page/login", data={"key": "admin", "to": "/"})
        assert done.status_code == 303 and COOKIE in browser.cookies
        assert browser.get("/page/sessions").status_code == 200
