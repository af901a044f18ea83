"""Pages of listed web sites may use the API; without the setting, and for administration, no origin is allowed."""

from __future__ import annotations

import pytest

from openclaw.errors import ConfigError
from openclaw.settings import Settings
from tests.fakes.running_gateway import RunningGateway, StartGateway

SITE = "https://chat.example.com"
ASK = {
    "Origin": SITE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-session-id",
}
HELLO = {"messages": [{"role": "user", "content": "hi"}]}
ALLOWED = "access-control-allow-origin"


def test_without_the_setting_no_origin_is_allowed(gateway: RunningGateway) -> None:
    answer = gateway.http.options("/v1/chat/completions", headers=ASK)
    assert ALLOWED not in answer.headers and answer.status_code >= 400
    assert gateway.http.post("/v1/chat/completions", json=HELLO, headers={"Origin": SITE}).status_code == 403


def test_an_allowed_origin_may_use_only_the_api(start_gateway: StartGateway) -> None:
    gateway = start_gateway(cors_origin=(SITE,))
    gateway.says("hello")
    asked = gateway.http.options("/v1/chat/completions", headers=ASK)
    assert asked.status_code == 200 and asked.headers[ALLOWED] == SITE
    assert "x-session-id" in asked.headers["access-control-allow-headers"].lower()
    for stream in (False, True):
        body = {**HELLO, "stream": stream}
        answer = gateway.http.post("/v1/chat/completions", json=body, headers={"Origin": SITE})
        assert answer.status_code == 200 and answer.headers[ALLOWED] == SITE
    wrong = gateway.http.post("/v1/chat/completions", json={}, headers={"Origin": SITE})
    assert wrong.status_code == 400 and wrong.headers[ALLOWED] == SITE
    other = gateway.http.post("/v1/chat/completions", json=HELLO, headers={"Origin": "https://evil.example"})
    assert other.status_code == 403 and ALLOWED not in other.headers
    for path in ("/admin/turns", "/status"):
        closed = gateway.http.get(path, headers={"Origin": SITE})
        assert ALLOWED not in closed.headers
    assert gateway.http.get("/admin/turns", headers={"Origin": SITE}).status_code == 403


@pytest.mark.parametrize("origin", ["*", "chat.example.com", "https://a.example/path", "https://*.example"])
def test_an_origin_must_be_a_single_site(origin: str) -> None:
    with pytest.raises(ConfigError, match="--cors-origin"):
        Settings(model_path="x", cors_origin=(origin,))
