"""Tests that an engine without a key accepts requests of programs and rejects those of web pages."""

from __future__ import annotations

import json
import threading

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from claw_base.ports import listen
from slime.engines.json_http import SERVER_OPTIONS, JsonHttp
from tests.fakes.other_user import answer_to_another_user, needs_root

WIRE = JsonHttp(json.loads, lambda value: json.dumps(value).encode())


@pytest.fixture
def asked() -> list[str]:
    """Returns the paths whose handlers ran."""
    return []


@pytest.fixture
def engine(asked: list[str]) -> TestClient:
    async def handler(request: Request) -> Response:
        asked.append(request.url.path)
        return WIRE.answer({"success": True})

    return TestClient(Starlette(routes=WIRE.routes({"/abort_request": handler}, {"/server_info": handler})))


@needs_root
@pytest.mark.parametrize("forged", ["", "X-Forwarded-For: 192.0.2.1\r\n"])
def test_another_user_cannot_use_an_engine(asked: list[str], forged: str) -> None:
    async def handler(request: Request) -> Response:
        asked.append(request.url.path)
        return WIRE.answer({"success": True})

    app = Starlette(routes=WIRE.routes({"/abort_request": handler}, {"/server_info": handler}))
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", **SERVER_OPTIONS))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        host, port = listener.getsockname()
        for method, path in (("POST", "/abort_request"), ("GET", "/server_info")):
            answer = answer_to_another_user(host, port, method, path, forged)
            assert answer.startswith(b"HTTP/1.1 403"), answer
        assert asked == []
        assert httpx.get(f"http://{host}:{port}/server_info").status_code == 200
        server.should_exit = True
        thread.join(10)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
    ids=["simple post", "sandboxed frame", "page of this machine", "no origin"],
)
def test_a_web_page_cannot_use_an_engine(
    engine: TestClient, asked: list[str], headers: dict[str, str]
) -> None:
    assert engine.post("/abort_request", content=b'{"abort_all": true}', headers=headers).status_code == 403
    assert engine.get("/server_info", headers=headers).status_code == 403
    assert asked == []


def test_programs_and_typed_urls_can_use_an_engine(engine: TestClient, asked: list[str]) -> None:
    assert engine.post("/abort_request", content=b"{}").status_code == 200
    assert engine.get("/server_info", headers={"Sec-Fetch-Site": "none"}).status_code == 200
    assert asked == ["/abort_request", "/server_info"]
