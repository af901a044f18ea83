"""Each class of errors has the status, type, code and words by which clients of OpenAI's and Anthropic's APIs
recognise it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from openclaw.errors import ClientError, PromptTooLongError
from tests.fakes.running_gateway import RunningGateway, StartGateway

TALK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
RATE = re.compile(r"rate[ _]limit|too many requests", re.IGNORECASE)
KEY = re.compile(r"incorrect api key|invalid[ _]?api[ _]?key|unauthorized", re.IGNORECASE)
MODEL = re.compile(r"the model .* does not exist|model_not_found", re.IGNORECASE)
TIME = re.compile(r"timed? ?out", re.IGNORECASE)
LONG = re.compile(r"maximum context length is \d+ tokens|prompt is too long: \d+ tokens > \d+ maximum")
ROUTES = ("/v1/chat/completions", "/v1/messages")


def error_of(answer: Any, route: str) -> tuple[int, str, str | None, str]:
    """Returns (status, type, code, message); the format must be the route's."""
    body = answer.json()
    if route == "/v1/messages":
        assert body["type"] == "error" and set(body["error"]) == {"type", "message"}
        return answer.status_code, body["error"]["type"], None, body["error"]["message"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return answer.status_code, body["error"]["type"], body["error"]["code"], body["error"]["message"]


@pytest.mark.parametrize("route", ROUTES)
def test_rate_limits(start_gateway: StartGateway, route: str) -> None:
    gateway = start_gateway(rate_limit=1)
    gateway.says("hello")
    answers = [gateway.http.post(route, json=TALK) for _ in range(3)]
    status, kind, code, message = error_of(answers[-1], route)
    assert status == 429 and kind == "rate_limit_error" and RATE.search(message)
    assert message.startswith("Rate limit reached")
    assert code in (None, "rate_limit_exceeded") and int(answers[-1].headers["retry-after"]) > 0


@pytest.mark.parametrize("route", ROUTES)
def test_wrong_keys_unknown_models_and_long_prompts_have_their_error_codes(
    keyed: RunningGateway, route: str
) -> None:
    wrong = keyed.http.post(route, json=TALK, headers={"Authorization": "Bearer other"})
    status, kind, code, message = error_of(wrong, route)
    assert (status, kind) == (401, "authentication_error") and code in (None, "invalid_api_key")
    assert KEY.search(message) and message.startswith("Incorrect API key provided")
    much = {**TALK, "messages": [{"role": "user", "content": "word " * 30_000}]}
    status, kind, code, message = error_of(keyed.http.post(route, json=much), route)
    assert (status, kind) == (400, "invalid_request_error") and code in (None, "context_length_exceeded")
    assert LONG.search(message)


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_model_has_each_apis_error(start_gateway: StartGateway, route: str) -> None:
    gateway = start_gateway(strict_model_name=True)
    status, kind, code, message = error_of(gateway.http.post(route, json={**TALK, "model": "other"}), route)
    assert status == 404 and kind in ("invalid_request_error", "not_found_error")
    assert code in (None, "model_not_found") and MODEL.search(message)


@pytest.mark.parametrize("route", ROUTES)
def test_timeouts(start_gateway: StartGateway, route: str) -> None:
    gateway = start_gateway(request_timeout=0.2)
    gateway.says("hello there, how are you today?")
    gateway.engine.chunk, gateway.engine.pause = 1, 0.5
    status, kind, _code, message = error_of(gateway.http.post(route, json=TALK), route)
    assert status == 504 and kind in ("server_error", "timeout_error") and TIME.search(message)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_error_types_follow_anthropics_statuses(status: int, kind: str) -> None:
    body = ClientError("x", status=status).body_for("/v1/messages")
    assert body["error"]["type"] == kind
    long = PromptTooLongError(5, 4).body_for("/v1/messages/count_tokens")
    assert LONG.search(long["error"]["message"])
