"""/docs: every route of the OpenAPI document on one page, without a network."""

from __future__ import annotations

import html

from tests.fakes.running_gateway import RunningGateway


def test_the_page_lists_every_route_with_its_parameters(gateway: RunningGateway) -> None:
    text = html.unescape(gateway.http.get("/docs").text)
    document = gateway.http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f">{method.upper()}</span> <code>{path}</code>" in text
            assert all(one["name"] in text for one in operation.get("parameters", []))
    for field in ("max_completion_tokens", "previous_response_id", "stop_sequences", "0 to 2"):
        assert field in text
    assert f"{gateway.url}/v1" in text and "small-qwen3" in text


def test_the_page_needs_no_key_and_shows_none(gateway: RunningGateway) -> None:
    answer = gateway.http.get("/docs", headers={"Authorization": ""})
    assert answer.status_code == 200 and "secret-key" not in answer.text


def test_an_untrusted_host_name_is_escaped_on_the_page(gateway: RunningGateway) -> None:
    answer = gateway.http.get("/docs", headers={"Host": "a<b>"})
    assert "<b>" not in answer.text
