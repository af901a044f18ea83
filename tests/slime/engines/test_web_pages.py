"""An engine asks for no key: what programs may do, a web page that somebody visits must not."""

from __future__ import annotations

import json

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from slime.engines.json_http import JsonHttp

WIRE = JsonHttp(json.loads, lambda value: json.dumps(value).encode())


@pytest.fixture
def asked() -> list[str]:
    """The paths whose handlers ran."""
    return []


@pytest.fixture
def engine(asked: list[str]) -> TestClient:
    async def handler(request: Request) -> Response:
        asked.append(request.url.path)
        return WIRE.answer({"success": True})

    return TestClient(Starlette(routes=WIRE.routes({"/abort_request": handler}, {"/server_info": handler})))


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


def test_programs_and_who_types_the_address_can(engine: TestClient, asked: list[str]) -> None:
    assert engine.post("/abort_request", content=b"{}").status_code == 200
    assert engine.get("/server_info", headers={"Sec-Fetch-Site": "none"}).status_code == 200
    assert asked == ["/abort_request", "/server_info"]
