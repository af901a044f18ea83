"""Our service on Tinker's SDK, with answers of a real local server (skyrl 0.4.0).

`lab/claw_lab/long/run_tinker.sh` runs that server.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("tinker")

import httpx
import tinker
from tinker import types

from openclaw_tinker.sampler import TinkerSampler
from slime.rented.sdk import ShapedTrained, then, translated
from slime.rented.service import (
    AdamStep,
    SamplingRequest,
    ServiceAway,
    ServiceForgot,
    ServiceRefuses,
    TrainingSequence,
)

PASSAGES = [
    TrainingSequence([5, 6, 7], [-0.5, -0.25], [0.0, 2.0]),
    TrainingSequence([5, 6, 7, 8, 9], [-1.0] * 4, [0.0, 0.0, 1.0, -1.0]),
]


class Recorder:
    """An SDK client that records its calls and returns given answers."""

    def __init__(self, **answers: object) -> None:
        self.answers, self.asked = answers, {}

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        def call(*args: object, **words: object) -> Future[Any]:
            self.asked[name] = (*args, words) if words else args
            future: Future[Any] = Future()
            answer = self.answers[name]
            future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)
            return future

        return call


def failed(status: int, text: str) -> Exception:
    """Returns the SDK's exception for a failed request: a ValueError whose cause has the status."""
    request = httpx.Request("POST", "http://service")
    cause = tinker.APIStatusError(text, response=httpx.Response(status, request=request), body=None)
    error = ValueError(f"Error retrieving result: Error code: {status} - {text}")
    error.__cause__ = cause
    return error


def output(*log_probs: list[float]) -> Any:
    rows = [
        {"logprobs": types.TensorData(data=values, dtype="float32", shape=[len(values)])}
        for values in log_probs
    ]
    return types.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=rows, metrics={})


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "LoRA rank 64 must be between 1 and 8", ServiceRefuses),
        (400, "Engine is configured for 'a' but request specified 'b'", ServiceRefuses),
        (400, "Model model_1 not loaded (likely stale request from previous server)", ServiceForgot),
        (401, "invalid key", ServiceAway),
        (429, "too many", ServiceAway),
        (503, "down", ServiceAway),
    ],
)
def test_a_failure_is_retryable_or_not(status: int, text: str, kind: type[Exception]) -> None:
    error = translated(failed(status, text))
    assert type(error) is kind
    assert "\n" not in str(error)


def test_an_invalid_answer_of_the_service_is_retried() -> None:
    assert type(translated(TimeoutError())) is ServiceAway
    assert (
        type(translated(tinker.APIConnectionError(request=httpx.Request("GET", "http://x")))) is ServiceAway
    )


def test_a_sampled_answer_keeps_its_stop_id_and_all_log_probs() -> None:
    sequence = types.SampledSequence(
        stop_reason="stop", _tokens_list=[268, 588, 2], _logprobs_list=[-1.8, -0.1, -0.2]
    )
    client = Recorder(sample=types.SampleResponse(sequences=[sequence]))
    found = (
        TinkerSampler(client).sample(SamplingRequest([1, 2], most=9, temperature=0.6, stop_ids=(2,))).result()
    )  # type: ignore[arg-type]
    assert (found.ids, found.log_probs, found.ended) == ([268, 588, 2], [-1.8, -0.1, -0.2], True)
    prompt, count, params = client.asked["sample"]
    assert (prompt.to_ints(), count, params.max_tokens, list(params.stop)) == ([1, 2], 1, 9, [2])


@pytest.mark.parametrize("given", [[-0.5, -0.25], [None, -0.5, -0.25]])
def test_log_probs_with_and_without_the_first_token_are_accepted(given: list[float | None]) -> None:
    client = Recorder(compute_logprobs=given)
    assert TinkerSampler(client).log_probs([5, 6, 7]).result() == [-0.5, -0.25]  # type: ignore[arg-type]


def test_log_probs_of_a_wrong_length_are_rejected() -> None:
    client = Recorder(compute_logprobs=[-0.5])
    with pytest.raises(ServiceAway, match="1 log-probs came for 3 ids"):
        TinkerSampler(client).log_probs([5, 6, 7]).result()  # type: ignore[arg-type]


@pytest.mark.parametrize(("reduction", "scales"), [("sum", (1, 1)), ("mean", (2 * 2, 2 * 4))])
def test_the_servers_averaging_is_undone(reduction: Any, scales: tuple[int, int]) -> None:
    client = Recorder(forward_backward=output([-0.5, -0.25], [-1.0] * 4))
    trained = ShapedTrained(client, types, reduction)  # type: ignore[arg-type]
    assert trained.policy_gradient("ppo", (0.8, 1.28), PASSAGES).result() == [[-0.5, -0.25], [-1.0] * 4]
    data, loss, config = client.asked["forward_backward"]
    assert (loss, config) == ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28})
    for datum, passage, scale in zip(data, PASSAGES, scales, strict=True):
        inputs = datum.loss_fn_inputs
        assert datum.model_input.to_ints() == list(passage.ids[:-1])
        assert inputs["target_tokens"].data == list(passage.ids[1:])
        assert inputs["advantages"].data == [scale * value for value in passage.advantages]
        assert inputs["logprobs"].data == pytest.approx(list(passage.log_probs))


def test_without_a_clip_importance_sampling_is_requested_and_steps_send_all_adam_settings() -> None:
    client = Recorder(
        forward_backward=output([-0.5, -0.25]),
        optim_step=types.OptimStepResponse(metrics={"skyrl.ai/grad_norm": 0.5}),
    )
    trained = ShapedTrained(client, types, "sum")  # type: ignore[arg-type]
    trained.policy_gradient("importance_sampling", (0.0, 1e9), PASSAGES[:1]).result()
    assert client.asked["forward_backward"][2] is None
    assert trained.step(AdamStep(1e-3, 0.9, 0.98, 1e-8, 0.1, 1.0)).result() == {"skyrl.ai/grad_norm": 0.5}
    [params] = client.asked["optim_step"]
    assert (params.learning_rate, params.beta2, params.grad_clip_norm) == (1e-3, 0.98, 1.0)


def test_a_failed_future_raises_our_error_and_an_abandoned_one_none() -> None:
    broken: Future[int] = Future()
    waiting = then(broken, lambda value: value)
    broken.set_exception(failed(503, "down"))
    with pytest.raises(ServiceAway):
        waiting.result()
    late: Future[int] = Future()
    given_up = then(late, lambda value: value)
    given_up.cancel()
    late.set_result(1)
    assert given_up.cancelled()
