"""Tests public completions endpoints as engines: exact ids from the fields of real servers, or a rejection."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from slime.errors import ConfigError
from slime.rented.completions import CompletionsService
from slime.rented.service import SamplingRequest, ServiceAway, ServiceRefuses, ServiceSettings

Choice = dict[str, Any]
VLLM: Choice = {
    "index": 0, "text": "4.", "token_ids": [19, 13, 2], "prompt_token_ids": [5, 6], "finish_reason": "stop",
    "logprobs": {"tokens": ["4", ".", "</s>"], "token_logprobs": [-0.5, -0.25, -0.125], "top_logprobs": [{}, {}, {}]},
}  # fmt: skip
FIREWORKS: Choice = {
    "index": 0, "text": "4.", "finish_reason": "length", "raw_output": {"completion_token_ids": [19, 13]},
    "logprobs": {"content": [{"logprob": -0.5, "sampling_logprob": -0.1}, {"logprob": -0.25, "sampling_logprob": -0.2}]},
}  # fmt: skip
TEXT_ALONE: Choice = {"index": 0, "text": "4.", "finish_reason": "stop", "logprobs": None}


def endpoint(
    answer: Callable[[dict[str, Any]], httpx.Response],
) -> tuple[CompletionsService, list[dict[str, Any]]]:
    """Returns a service connected to an endpoint, and the bodies of its requests."""
    service = CompletionsService(ServiceSettings("some-model", "http://endpoint/v1"))
    asked: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/completions"
        asked.append(json.loads(request.content))
        return answer(asked[-1])

    service.client.http = httpx.Client(transport=httpx.MockTransport(handle))
    return service, asked


def always(choice: Choice) -> Callable[[dict[str, Any]], httpx.Response]:
    return lambda body: httpx.Response(200, json={"object": "text_completion", "choices": [choice]})


def test_vllms_answer_keeps_its_ids_and_log_probs() -> None:
    service, asked = endpoint(always(VLLM))
    wish = SamplingRequest([5, 6], most=9, temperature=0.5, top_k=20, stop_ids=(2,), seed=3)
    found = service.sampler(None).sample(wish).result()
    assert (found.ids, found.log_probs, found.ended) == ([19, 13, 2], [-0.5, -0.25, -0.125], True)
    [body] = asked
    assert (body["prompt"], body["max_tokens"], body["return_token_ids"]) == ([5, 6], 9, True)
    assert (body["temperature"], body["top_k"], body["stop_token_ids"], body["seed"]) == (0.5, 20, [2], 3)


def test_fireworks_answers_have_log_probs_at_temperature_1() -> None:
    service, _ = endpoint(always(FIREWORKS))
    found = service.sampler(None).sample(SamplingRequest([5], most=2, temperature=0.5)).result()
    assert (found.ids, found.log_probs, found.ended) == ([19, 13], [-0.5, -0.25], False)


def test_prompt_log_probs_exclude_the_first_and_the_generated_token() -> None:
    echoed = {**VLLM, "logprobs": {"token_logprobs": [None, -1.0, -2.0, -3.0]}}
    service, asked = endpoint(always(echoed))
    assert service.sampler(None).log_probs([5, 6, 7]).result() == [-1.0, -2.0]
    assert (asked[0]["echo"], asked[0]["max_tokens"]) == (True, 1)


def test_an_endpoint_that_returns_only_text_is_rejected_with_the_reason() -> None:
    service, _ = endpoint(always(TEXT_ALONE))
    with pytest.raises(ConfigError, match="returns no token ids") as refusal:
        service.check()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ServiceRefuses),
        (404, ServiceRefuses),
        (401, ServiceAway),
        (425, ServiceAway),
        (429, ServiceAway),
        (503, ServiceAway),
    ],
)
def test_a_status_is_retryable_or_not(status: int, kind: type[Exception]) -> None:
    service, _ = endpoint(lambda body: httpx.Response(status, text="no\nnot now"))
    with pytest.raises(kind, match=str(status)) as failure:
        service.sampler(None).sample(SamplingRequest([5], most=1)).result()
    assert "\n" not in str(failure.value)


def test_an_unavailable_endpoint_or_missing_log_probs_are_retried() -> None:
    def away(body: dict[str, Any]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    for answer in (away, always({**VLLM, "logprobs": {"token_logprobs": [-0.5]}})):
        service, _ = endpoint(answer)
        with pytest.raises(ServiceAway):
            service.sampler(None).sample(SamplingRequest([5], most=1)).result()


def test_completion_endpoints_do_not_support_training() -> None:
    service, _ = endpoint(always(VLLM))
    for train in (service.new, lambda: service.resume("state")):
        with pytest.raises(ConfigError, match="can only sample"):
            train()
    with pytest.raises(ServiceRefuses):
        service.sampler("some-version")


def test_an_address_is_required() -> None:
    with pytest.raises(ConfigError, match="--rented-url"):
        CompletionsService(ServiceSettings("some-model"))
