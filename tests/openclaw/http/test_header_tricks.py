"""Forged headers: proxies, duplicate values, and ambiguous lengths."""

from __future__ import annotations

import socket

import httpx
import pytest

from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO = b'{"messages": [{"role": "user", "content": "hi"}]}'


def exchange(gateway: RunningGateway, *lines: str, body: bytes = HELLO) -> bytes:
    """Returns the complete answer to a POST with these header lines."""
    head = ["POST /v1/chat/completions HTTP/1.1", "Authorization: Bearer secret-key", *lines]
    with socket.create_connection(
        ("127.0.0.1", int(gateway.url.rpartition(":")[2])), timeout=5
    ) as connection:
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        connection.settimeout(1.0)
        answer = b""
        try:
            while data := connection.recv(65536):
                answer += data
        except TimeoutError:
            pass
        return answer


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Host": "localhost"},
        {"X-Forwarded-Proto": "https"},
        {"X-Real-IP": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"CF-Connecting-IP": "127.0.0.1"},
        {"True-Client-IP": "127.0.0.1"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_administration_rejects_proxied_requests(
    start_gateway: StartGateway, headers: dict[str, str]
) -> None:
    url = f"{start_gateway().url}/admin/processes"
    assert httpx.get(url).status_code == 200
    assert httpx.get(url, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "twice",
    [
        ("Host: localhost", "Host: evil.example"),
        ("Host: x", "Authorization: Bearer other-key"),
        ("Host: x", "Origin: http://localhost", "Origin: https://evil.example"),
        ("Host: x", "X-Api-Key: a", "X-Api-Key: b"),
        ("Host: x", "X-Train: on", "X-Train: off"),
        ("Host: x", "X-Memory: on", "X-Memory: off"),
        ("Host: x", "X-Session-Id: a", "X-Session-Id: b"),
    ],
    ids=["host", "key", "origin", "x-api-key", "x-train", "x-memory", "x-session-id"],
)
def test_a_repeated_single_value_header_is_rejected(gateway: RunningGateway, twice: tuple[str, ...]) -> None:
    gateway.says("hi")
    answer = exchange(gateway, *twice, f"Content-Length: {len(HELLO)}")
    assert b" 400 " in answer.splitlines()[0] and b"more than one" in answer


@pytest.mark.parametrize(
    "framing",
    [
        (f"Content-Length: {len(HELLO)}", "Transfer-Encoding: chunked"),
        (f"Content-Length: {len(HELLO)}", "Content-Length: 5"),
        (f"Content-Length: +{len(HELLO)}",),
        ("Content-Length: 0x10",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("X-A: b\n\tfolded: c", f"Content-Length: {len(HELLO)}", "Transfer-Encoding: chunked, identity"),
    ],
)
def test_a_body_with_ambiguous_length_is_never_parsed_as_two_requests(
    gateway: RunningGateway, framing: tuple[str, ...]
) -> None:
    gateway.says("hi")
    hidden = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-key\r\n\r\n"
    answer = exchange(gateway, "Host: x", *framing, body=hidden)
    assert answer.count(b"HTTP/1.1 ") <= 1 and b'"owned_by"' not in answer
    assert gateway.http.get("/v1/models").status_code == 200


def test_a_cross_site_post_of_plain_text_is_rejected(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_key=None)
    gateway.says("hi")
    url = f"{gateway.url}/v1/chat/completions"
    simple = {"Content-Type": "text/plain", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert httpx.post(url, content=HELLO, headers=simple).status_code == 403
    silent = {"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert httpx.post(url, content=HELLO, headers=silent).status_code == 403
    assert httpx.post(url, content=HELLO, headers={"Host": "rebound.example"}).status_code == 403
    assert gateway.store.status.counts()["turns"] == {}


@pytest.mark.parametrize(
    "host",
    ["evil.example@127.0.0.1", "127.0.0.1/evil", "127.0.0.1#evil.example", "127.0.0.1?", "evil\\@localhost"],
)
def test_a_host_header_with_more_than_name_and_port_is_rejected(
    start_gateway: StartGateway, host: str
) -> None:
    gateway = start_gateway(api_key=None)
    gateway.says("hi")
    for path in ("/v1/models", "/admin/processes", "/"):
        assert httpx.get(f"{gateway.url}{path}").status_code == 200
        assert httpx.get(f"{gateway.url}{path}", headers={"Host": host}).status_code == 403
