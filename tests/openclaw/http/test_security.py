"""Keys, persons, limits, and content that must not be logged."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import time
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest

from openclaw.errors import ConfigError
from openclaw.http.middleware import RateLimit, RequestGuard
from openclaw.settings import Settings, load_settings
from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def post(gateway: RunningGateway, headers: dict[str, str], **body: object) -> httpx.Response:
    return httpx.post(f"{gateway.url}/v1/chat/completions", json={"messages": HELLO, **body}, headers=headers)


def test_a_named_key_is_the_person_unless_the_request_names_one(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="ada=key-a, bob=key-b")
    gateway.says("hi")
    forged = {"openclaw-person": "eve"}
    persons = [
        gateway.turn(post(gateway, headers, **body).json()["id"]).person
        for headers, body in (
            (bearer("key-a"), {}),
            (bearer("key-b") | forged, {}),
            (bearer("key-b"), {"user": "carol"}),
            (bearer("secret-key") | forged, {}),
        )
    ]
    assert persons == ["ada", "bob", "carol", None]
    chinese = start_gateway(api_keys="小明=key-m,小红=key-h")
    persons = [chinese.turn(post(chinese, bearer(key)).json()["id"]).person for key in ("key-m", "key-h")]
    assert persons == ["小明", "小红"]
    assert post(gateway, bearer("key-c")).status_code == 401
    assert post(gateway, {"x-api-key": "key-a"}).status_code == 200


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"SGLANG_API_KEY": "abc\ndef"}, "SGLANG_API_KEY"),
        ({"OPENCLAW_ADMIN_KEY": "two words"}, "OPENCLAW_ADMIN_KEY"),
        ({"OPENCLAW_API_KEYS": "ada=kéy"}, "'ada'"),
        ({"OPENCLAW_API_KEYS": "ada="}, "'ada'"),
        ({"OPENCLAW_API_KEYS": "just-a-key"}, "NAME=KEY"),
        ({"OPENCLAW_API_KEYS": "ada=k1,ada=k2"}, "twice"),
        ({"OPENCLAW_API_KEYS": "ada=k1,bob=k1"}, "two names have one key"),
        ({"OPENCLAW_API_KEYS": "ada=k1", "SGLANG_API_KEY": "k1"}, "two names have one key"),
    ],
)
def test_invalid_header_keys_are_rejected_without_printing_them(variables: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings([], {"MODEL_PATH": "/m", **variables})
    message = str(caught.value)
    assert told in message and "\n" not in message
    assert not any(key in message for key in ("abc", "two words", "kéy", "just-a-key", "k1"))


def test_named_keys_suffice_to_listen_on_other_interfaces() -> None:
    assert Settings(model_path="/m", host="0.0.0.0", api_keys="ada=k").client_keys == (("ada", "k"),)


def test_administration_needs_a_local_address_or_the_admin_key(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    url = f"{gateway.url}/admin/processes"
    assert httpx.get(url).status_code == 200
    assert httpx.get(url, headers={"Forwarded": "for=10.0.0.1"}).status_code == 403
    assert httpx.get(url, headers={"Origin": "https://evil.example"}).status_code == 403
    keyed = start_gateway(admin_key="admin-key")
    url = f"{keyed.url}/admin/processes"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=bearer("secret-key")).status_code == 401
    assert httpx.get(url, headers=bearer("admin-key")).status_code == 200
    assert post(keyed, bearer("admin-key")).status_code == 401


def test_an_administrator_deletes_a_session_permanently(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin-key")
    gateway.says("hi")
    post(gateway, bearer("secret-key"), session_id="s")
    url = f"{gateway.url}/admin/sessions/s/content"
    assert httpx.delete(url, headers=bearer("secret-key")).status_code == 401
    assert httpx.delete(url, headers=bearer("admin-key")).json()["deleted"]["turns"] == 1
    assert gateway.store.sessions.get("s") is None and gateway.store.status.counts()["turns"] == {}
    assert httpx.delete(url, headers=bearer("admin-key")).status_code == 404


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://evil.example", None, 403),
        ("http://evil.example:80", "evil.example:80", 403),
        ("null", None, 403),
        ("http://localhost:3000", None, 200),
        ("http://192.0.2.7:30000", "192.0.2.7:30000", 200),
    ],
)
def test_web_pages_of_other_sites_cannot_use_a_gateway_without_a_key(
    start_gateway: StartGateway, origin: str, host: str | None, status: int
) -> None:
    gateway = start_gateway(api_key=None)
    gateway.says("hi")
    assert post(gateway, {"Origin": origin} | ({"Host": host} if host else {})).status_code == status


def test_the_rate_of_one_key_is_limited_without_affecting_others(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="ada=key-a,bob=key-b", rate_limit=2)
    gateway.says("hi")
    answers = [post(gateway, bearer("key-a")) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert post(gateway, bearer("key-b")).status_code == 200
    assert httpx.get(f"{gateway.url}/healthz", headers=bearer("key-a")).status_code == 200


def test_the_rate_limit_recovers() -> None:
    limit = RateLimit(per_minute=3000)
    waits = [limit.take("a") for _ in range(3001)]
    assert waits[0] == 0 and waits[-1] > 0
    time.sleep(0.05)
    assert limit.take("a") == 0
    assert RateLimit(0).take("a") == 0


def test_neither_keys_nor_prompts_are_logged(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gateway.says("an answer to remember")
    secret: list[Any] = [{"role": "user", "content": "my password is hunter2"}]
    gateway.engine.die_after = 3
    assert gateway.http.post("/v1/chat/completions", json={"messages": secret}).status_code == 200
    gateway.http.post("/v1/chat/completions", json={"messages": secret, "n": "x"})
    gateway.http.post("/v1/chat/completions", json={"messages": secret}, headers=bearer("stolen-key"))
    gateway.app.state.gateway.recorder._writer.close()
    gateway.http.post("/v1/chat/completions", json={"messages": secret})
    assert "is retried after" in caplog.text
    for word in ("hunter2", "remember", "secret-key", "stolen-key"):
        assert word not in caplog.text


def test_a_too_long_body_is_rejected_with_and_without_a_length_header(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway(max_body_bytes=1000)
    gateway.says("hi")
    long = [{"role": "user", "content": "x" * 2000}]
    told = gateway.http.post("/v1/chat/completions", json={"messages": long})

    def parts() -> Any:
        for _ in range(20):
            yield b" " * 100

    untold = gateway.http.post("/v1/chat/completions", content=parts())
    for answer in (told, untold):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert post(gateway, bearer("secret-key")).status_code == 200


def test_a_body_that_does_not_arrive_times_out(start_gateway: StartGateway) -> None:
    gateway = start_gateway(client_timeout=0.3)
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-key\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        connection.settimeout(5)
        answer = connection.recv(4096)
    assert b" 408 " in answer and b"request_timeout" in answer


async def test_client_that_does_not_read_is_disconnected(gateway: RunningGateway) -> None:
    gateway.says("a long answer " * 20)
    settings = dataclasses.replace(gateway.app.state.gateway.settings, client_timeout=0.2)
    body = b'{"messages": [{"role": "user", "content": "hello"}], "stream": true}'
    scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"", "query_string": b"",
        "headers": [(b"authorization", b"Bearer secret-key")], "client": ("127.0.0.1", 1), "root_path": "",
        "scheme": "http", "server": ("127.0.0.1", 1), "http_version": "1.1", "app": gateway.app, "state": {},
    }  # fmt: skip
    read: list[Any] = []
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(asked, None) or await asyncio.Event().wait()

    async def send(message: MutableMapping[str, Any]) -> None:
        read.append(message)
        if len(read) > 2:
            await asyncio.Event().wait()

    app = gateway.app.middleware_stack.app
    while not isinstance(app, RequestGuard):
        app = app.app
    await asyncio.wait_for(RequestGuard(app._app, settings)(scope, receive, send), 5)
    assert gateway.store.status.counts()["turns"] == {"aborted": 1}


def test_client_that_reads_a_byte_at_a_time_delays_no_other(gateway: RunningGateway) -> None:
    gateway.says("a long answer " * 100)
    body = b'{"messages": [{"role": "user", "content": "hello"}], "stream": true}'
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-key\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        for _ in range(5):
            assert len(slow.recv(1)) == 1
            began = time.monotonic()
            assert post(gateway, bearer("secret-key"), max_tokens=3).status_code == 200
            assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example"}, 403),
        ({"Host": "rebound.example:30000"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost:30000"}, 200),
        ({"Host": "gateway:30000"}, 200),
        ({"Host": "host.docker.internal"}, 200),
        ({"Host": "mybox.local"}, 200),
        ({"Host": "192.168.1.5:30000"}, 200),
        ({"Host": "Chat.Example.ORG"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_without_a_key_public_host_names_are_rejected(
    start_gateway: StartGateway, headers: dict[str, str], status: int
) -> None:
    gateway = start_gateway(api_key=None, allowed_hosts=("chat.example.org",))
    assert httpx.get(f"{gateway.url}/v1/models", headers=headers).status_code == status
    assert httpx.get(f"{gateway.url}/healthz", headers=headers).status_code == 200


def test_a_rejected_host_is_named_and_an_ambiguous_one_is_called_invalid(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=None)
    words = [
        httpx.get(f"{gateway.url}/v1/models", headers={"Host": host}).json()["error"]["message"]
        for host in ("rebound.example", "localhost@rebound.example")
    ]
    assert "unknown host name 'rebound.example'" in words[0] and "ALLOWED_HOSTS" in words[0]
    assert words[1] == "the Host header is not a valid host name"


def test_with_a_key_any_host_name_is_served(keyed: RunningGateway) -> None:
    assert keyed.http.get("/v1/models", headers={"Host": "any.example"}).status_code == 200
