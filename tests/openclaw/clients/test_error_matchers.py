"""Clients recognise each class of errors with their own code: tables of words, codes and exceptions from npm and
PyPI.

OpenAI's, Anthropic's and LangChain's packages are in requirements-dev.txt. The others are installed by
`bash lab/claw_lab/long/error_words.sh`, which runs this file; `CLIENT_MATCHERS` names their folder.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.chat_client import MODEL
from tests.fakes.running_gateway import KEY, StartGateway

Json = dict[str, Any]
APIS = ("chat", "responses", "messages")
ROUTES = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
ERRORS = ("overflow", "key", "limit", "model", "field", "timeout")
HERE = Path(__file__).parent / "matchers"
FOLDER = Path(os.environ.get("CLIENT_MATCHERS", "nowhere"))


@pytest.fixture
def cases(start_gateway: StartGateway) -> dict[str, list[Json]]:
    """Returns one request for each class of errors, by API. Each always gets that error."""
    common: Json = {"api_key": KEY, "strict_model_name": True}
    gateway = start_gateway(request_timeout=0.3, **common)
    limited = start_gateway(rate_limit=0.01, **common)
    gateway.says("hello there, how are you today?")
    gateway.engine.chunk, gateway.engine.pause = 1, 0.5
    for _ in range(2):
        limited.http.post(ROUTES["chat"], json={})
    plain: Json = {"url": gateway.url, "key": KEY, "model": MODEL, "prompt": "hello", "temperature": None}
    changes: dict[str, Json] = {
        "overflow": {"prompt": "word " * 30_000},
        "key": {"key": "other"},
        "limit": {"url": limited.url},
        "model": {"model": "other"},
        "field": {"temperature": 99},
        "timeout": {},
    }
    return {api: [{**plain, "name": name, "api": api, **changes[name]} for name in ERRORS] for api in APIS}


def unstreamed_error(case: Json) -> tuple[int, Json]:
    """Returns (status, body) of a case without any client."""
    text: Json = {"messages": [{"role": "user", "content": case["prompt"]}], "max_tokens": 50}
    if case["api"] == "responses":
        text = {"input": case["prompt"]}
    body = {"model": case["model"], **text}
    if case["temperature"] is not None:
        body["temperature"] = case["temperature"]
    headers = {"Authorization": f"Bearer {case['key']}"}
    answer = httpx.post(case["url"] + ROUTES[case["api"]], json=body, headers=headers, timeout=20)
    return answer.status_code, answer.json()


def verdicts(command: list[str], cases: list[Json]) -> dict[str, str]:
    """Returns a program's classification of each case."""
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def installed(*names: str) -> Path:
    """Returns a path in the folder of clients. Skips the test if it does not exist."""
    place = FOLDER.joinpath(*names)
    if not place.exists():
        pytest.skip(
            f"{names[0]} is not installed: its matchers were NOT run (lab/claw_lab/long/error_words.sh)"
        )
    return place


OPENAI = {
    "overflow": openai.BadRequestError,
    "key": openai.AuthenticationError,
    "limit": openai.RateLimitError,
    "model": openai.NotFoundError,
    "field": openai.BadRequestError,
    "timeout": openai.InternalServerError,
}
CODES = {
    "overflow": "context_length_exceeded",
    "key": "invalid_api_key",
    "limit": "rate_limit_exceeded",
    "model": "model_not_found",
}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openais_package_raises_the_matching_class_and_code(cases: dict[str, list[Json]], api: str) -> None:
    for case in cases[api]:
        client = openai.OpenAI(base_url=f"{case['url']}/v1", api_key=case["key"], max_retries=0)
        options: Json = {"model": case["model"], "temperature": case["temperature"]}
        with pytest.raises(OPENAI[case["name"]]) as caught:
            if api == "chat":
                asked: Any = [{"role": "user", "content": case["prompt"]}]
                client.chat.completions.create(messages=asked, **options)
            else:
                client.responses.create(input=case["prompt"], **options)
        assert type(caught.value) is OPENAI[case["name"]]
        if case["name"] in CODES:
            assert caught.value.code == CODES[case["name"]]


ANTHROPIC = {
    "overflow": ("BadRequestError", "invalid_request_error"),
    "key": ("AuthenticationError", "authentication_error"),
    "limit": ("RateLimitError", "rate_limit_error"),
    "model": ("NotFoundError", "not_found_error"),
    "field": ("BadRequestError", "invalid_request_error"),
    "timeout": ("DeadlineExceededError", "timeout_error"),
}


def test_anthropics_package_raises_the_matching_class_and_type(cases: dict[str, list[Json]]) -> None:
    import anthropic  # 3,000 modules, for the process that runs these tests

    for case in cases["messages"]:
        client = anthropic.Anthropic(base_url=case["url"], api_key=case["key"], max_retries=0)
        messages: Any = [{"role": "user", "content": case["prompt"]}]
        extra: Json = (
            {} if case["temperature"] is None else {"extra_body": {"temperature": case["temperature"]}}
        )
        expected, kind = ANTHROPIC[case["name"]]
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(model=case["model"], messages=messages, max_tokens=50, **extra)
        assert isinstance(caught.value, getattr(anthropic, expected)), (case["name"], caught.value)
        body: Any = caught.value.body
        assert body["error"]["type"] == kind


LANGCHAIN = {
    "overflow": "ContextOverflowError",
    "key": "ModelAuthenticationError",
    "limit": "ModelRateLimitError",
    "model": "ModelNotFoundError",
    "field": "ModelInvalidRequestError",
    "timeout": "ModelAPIError",
}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_langchain_raises_the_matching_class(cases: dict[str, list[Json]], api: str) -> None:
    from langchain_core import exceptions
    from langchain_openai import ChatOpenAI

    for case in cases[api]:
        model = ChatOpenAI(
            base_url=f"{case['url']}/v1", api_key=case["key"], model=case["model"], max_retries=0,
            temperature=case["temperature"], use_responses_api=api == "responses",
        )  # fmt: skip
        with pytest.raises(getattr(exceptions, LANGCHAIN[case["name"]])):
            model.invoke(case["prompt"])


LITELLM = {
    "overflow": "ContextWindowExceededError",
    "key": "AuthenticationError",
    "limit": "RateLimitError",
    "model": "NotFoundError",
    "field": "BadRequestError",
    "timeout": "Timeout",
}


@pytest.mark.parametrize("api", APIS)
def test_litellm_raises_the_matching_class(cases: dict[str, list[Json]], api: str) -> None:
    python = installed("litellm", "bin", "python")
    assert verdicts([str(python), str(HERE / "by_litellm.py")], cases[api]) == LITELLM


def test_aider_retries_only_retryable_errors(cases: dict[str, list[Json]]) -> None:
    python = installed("aider-chat", "bin", "python")
    expected = {**LITELLM, "limit": "retry", "timeout": "retry"}
    assert verdicts([str(python), str(HERE / "by_litellm.py")], cases["chat"]) == expected


HERMES = {
    "overflow": "overflow",
    "key": "auth",
    "limit": "rate_limit",
    "model": "model_not_found",
    "field": "format_error",
    "timeout": "server_error",
}


@pytest.mark.parametrize("api", APIS)
def test_hermes_classifies_each_error(cases: dict[str, list[Json]], api: str) -> None:
    python = installed("hermes-agent", "bin", "python")
    assert verdicts([str(python), str(HERE / "by_hermes.py")], cases[api]) == HERMES


PI = {
    "overflow": "overflow",
    "key": "error",
    "limit": "retry",
    "model": "error",
    "field": "error",
    "timeout": "retry",
}


@pytest.mark.parametrize("api", APIS)
def test_pi_shortens_the_history_and_retries(cases: dict[str, list[Json]], api: str) -> None:
    packages, node = installed("pi", "node_modules"), installed("node", "bin", "node")
    assert verdicts([str(node), str(HERE / "pi.mjs"), str(packages)], cases[api]) == PI


OPENCLAW = {
    "overflow": "overflow",
    "key": "auth",
    "limit": "rate_limit",
    "model": "model_not_found",
    "field": "format",
    "timeout": "timeout",
}


@pytest.mark.parametrize("api", APIS)
def test_openclaw_classifies_each_error(cases: dict[str, list[Json]], api: str) -> None:
    packages, node = installed("openclaw", "node_modules"), installed("node", "bin", "node")
    answers = []
    for case in cases[api]:
        status, body = unstreamed_error(case)
        answers.append({"name": case["name"], "status": status, "body": body})
    assert verdicts([str(node), str(HERE / "openclaw.mjs"), str(packages)], answers) == OPENCLAW
