"""Bytes that no client library sends, and bodies of wrong shapes in every API."""

from __future__ import annotations

import hashlib
import logging
import re
import socket
from base64 import b64encode
from typing import Any

import httpx
import pytest

from openclaw.http.middleware import LONGEST_HEAD
from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-key\r\n"


def connect(gateway: RunningGateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), timeout=5)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"X-A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ", b"b"),
        (b"GET /", b"b"),
        (CHAT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n"),
        (CHAT + b"Transfer-Encoding: chunked\r\n\r\n1;", b"b"),
    ],
    ids=["headers", "a header", "address", "trailers", "chunk extension"],
)
def test_too_many_bytes_outside_a_body_close_the_connection(
    gateway: RunningGateway, begin: bytes, more: bytes
) -> None:
    data = more * (1 + 65536 // len(more))
    with connect(gateway) as connection:
        connection.sendall(begin)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                connection.sendall(data)
    assert gateway.http.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHo"]
)
def test_an_idle_connection_is_closed(start_gateway: StartGateway, sent: bytes) -> None:
    gateway = start_gateway(client_timeout=0.5)
    with connect(gateway) as connection:
        connection.sendall(sent)
        got = b""
        while piece := connection.recv(65536):  # raises TimeoutError after 5 s
            got += piece
    assert (b" 200 " in got) == sent.endswith(b"Ho")


def test_an_answer_may_take_longer_than_the_header_timeout(start_gateway: StartGateway) -> None:
    gateway = start_gateway(client_timeout=0.3)
    gateway.says("one two three four five six")
    gateway.engine.pause = 0.2
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO})
    assert answer.status_code == 200 and answer.elapsed.total_seconds() > 0.6


def test_too_long_request_headers_are_rejected_with_the_reason(gateway: RunningGateway) -> None:
    long = {"X-A": "b" * (LONGEST_HEAD - 1000), "X-B": "b" * 500}
    assert gateway.http.get("/v1/models", headers=long).status_code == 200
    with connect(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-A: bbbbbbbbbbbbb\r\n" * 3300)
        answer = connection.recv(65536)
    assert b" 431 " in answer and b"headers_too_large" in answer


@pytest.mark.parametrize("sent_in", [1, 2])
def test_too_long_headers_are_rejected_in_any_chunking(gateway: RunningGateway, sent_in: int) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-A: %s\r\n\r\n{}" % (
        b"b" * 100_000
    )
    middle = 40_000 if sent_in == 2 else len(head)
    with connect(gateway) as connection:
        connection.sendall(head[:middle])
        connection.sendall(head[middle:])
        answer = connection.recv(65536)
    assert b" 431 " in answer and b"headers_too_large" in answer


def test_a_body_in_chunks_of_one_byte_is_accepted(gateway: RunningGateway) -> None:
    gateway.says("hi")
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 700 + b'"}]}'
    padded = body + b" " * (LONGEST_HEAD // 4)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in padded)
    with connect(gateway) as connection:
        connection.sendall(
            CHAT + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks + b"0\r\n\r\n"
        )
        assert b" 200 OK" in connection.recv(65536)


def test_a_client_that_disconnects_during_its_request_logs_no_error(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with connect(gateway) as connection:
        connection.sendall(CHAT + b'Content-Length: 100\r\n\r\n{"messages"')
    gateway.wait_for(lambda: "disconnected before its request was complete" in caplog.text)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_session_ids_in_headers_are_utf_8(gateway: RunningGateway) -> None:
    gateway.says("hi")
    for headers, body in (
        ({"X-Session-Id": "Gespräch 李".encode()}, {}),
        ({}, {"session_id": "Gespräch 李"}),
    ):
        answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, **body}, headers=headers)
        assert answer.json()["session_id"] == "Gespräch 李"
    assert gateway.store.sessions.get("Gespräch 李").turns == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hi", "messages": 5}),
        ("/v1/completions", {"prompt": "hi", "messages": ["x", 1]}),
        ("/v1/responses", {"input": [{"type": "reasoning", "content": 5}, *HELLO]}),
        ("/v1/responses", {"input": [{"type": "reasoning", "summary": {"a": 1}}, *HELLO]}),
        ("/v1/responses", {"input": "hi", "previous_response_id": "a\0b"}),
        ("/v1/chat/completions", {"messages": HELLO, "user": "a\0b"}),
        ("/v1/chat/completions", {"messages": HELLO, "user": "x" * 300}),
        ("/v1/chat/completions", {"messages": HELLO, "train": "no"}),
        ("/v1/feedback", {"completion_id": "a\0b", "score": 1}),
        ("/v1/feedback", {"session_id": "s", "score": 1, "user": 5}),
    ],
)
def test_invalid_shapes_never_cause_a_server_error(gateway: RunningGateway, path: str, body: object) -> None:
    gateway.says("hi")
    assert gateway.http.post(path, json=body).status_code in (200, 400, 404)


@pytest.mark.parametrize("limit", ["²", "9" * 30, "-1", "1.5", ""])
def test_limits_that_are_not_numbers_are_rejected(gateway: RunningGateway, limit: str) -> None:
    assert gateway.http.get("/admin/turns", params={"limit": limit}).status_code == 400


@pytest.mark.parametrize("wish", ["of", "none", "disabled", "2"])
def test_an_invalid_privacy_value_is_rejected(gateway: RunningGateway, wish: str) -> None:
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO}, headers={"X-Train": wish})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "train"


def test_health_supports_head_requests(gateway: RunningGateway) -> None:
    assert [gateway.http.head(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_pages_that_load_code_from_elsewhere_are_not_served(gateway: RunningGateway) -> None:
    assert gateway.http.get("/redoc").status_code == 404
    assert gateway.http.get("/openapi.json").status_code == 200
    answer = gateway.http.get("/docs")
    assert answer.status_code == 200 and not re.search(
        r"<script|<link|<img|<iframe|@import|url\(", answer.text
    )
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy
    style = re.search(r"<style>(.*?)</style>", answer.text, re.S)
    assert style is not None
    assert b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy


def test_sessions_with_a_slash_in_their_id_can_be_ended_and_deleted(gateway: RunningGateway) -> None:
    gateway.says("hi")
    gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "session_id": "a/b"})
    ended = gateway.http.delete("/admin/sessions/a%2Fb").json()
    assert ended["session_id"] == "a/b" and ended["expired_turns"] == 1
    assert gateway.http.delete("/admin/sessions/a%2Fb/content").json()["deleted"]["turns"] == 1
    assert gateway.http.delete("/admin/sessions/a%00b/content").status_code == 404


def test_ending_a_session_deletes_no_session_with_the_same_id_prefix(gateway: RunningGateway) -> None:
    gateway.says("hi")

    def talk(session: str) -> None:
        body = {"messages": HELLO, "session_id": session}
        assert gateway.http.post("/v1/chat/completions", json=body).status_code == 200

    talk("x")
    talk("x/content")
    plain = gateway.http.delete("/admin/sessions/x/content")
    assert (plain.status_code, plain.json()["error"]["code"]) == (409, "ambiguous_session")
    assert "/admin/sessions" not in plain.text and "x%2Fcontent" in plain.text
    for spelled in ("x%2Fcontent", "x%2fcontent"):
        ended = gateway.http.delete(f"/admin/sessions/{spelled}").json()
        assert (ended["session_id"], ended["ended"]) == ("x/content", True)
    assert gateway.store.sessions.get("x") is not None and gateway.store.status.counts()["turns"] == {
        "captured": 1, "expired": 1,
    }  # fmt: skip
    sure = gateway.http.delete("/admin/sessions/x/content", params={"session_id": "x"}).json()
    assert (sure["session_id"], sure["deleted"]["turns"]) == ("x", 1)
    gone = gateway.http.delete("/admin/sessions/x%2Fcontent/content").json()
    assert (gone["session_id"], gone["deleted"]["turns"]) == ("x/content", 1)
    talk("x")
    assert gateway.http.delete("/admin/sessions/x/content").json()["deleted"]["turns"] == 1


def test_administration_rejects_foreign_host_names(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=None)
    for host, status in (
        ("evil.example:30000", 403),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
    ):
        assert httpx.get(f"{gateway.url}/admin/turns", headers={"Host": host}).status_code == status


@pytest.mark.parametrize("seed", [2**63, 2**63 - 1, -(2**63) - 1])
def test_seeds_beyond_64_bits_are_rejected(gateway: RunningGateway, seed: int) -> None:
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "seed": seed, "n": 16})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "seed"
