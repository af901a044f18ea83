"""Sampling from a deployment, and log-probs of the base model, as a `slime.rented.service.Sampler`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from slime.rented.sdk import Loop, failures_translated, then
from slime.rented.service import Sampled, Sampler, SamplingRequest, ServiceAway, Trained, TrainingSequence

MOST_AT_A_TIME = 16
LOADING_SECONDS, LOADING_LOOKS = 2.0, 30
"""Pause in seconds, and number of retries, while a deployment loads weights (HTTP 425)."""


class DeploymentSampler:
    """Samples from the weights that a deployment serves now. Log-probs are the raw model's, over the whole vocabulary
    at temperature 1.

    Args:
        model: resource name of the deployment.
    """

    def __init__(self, url: str, model: str, key: str) -> None:
        from fireworks.training.sdk import DeploymentSampler as Sampling

        self.loop = Loop("fireworks-sampling")
        self.sampling = Sampling(inference_url=url, model=model, api_key=key)

    def sample(self, request: SamplingRequest) -> Future[Sampled]:
        options: dict[str, Any] = {"logprobs": True, "top_p": request.top_p, "top_k": max(request.top_k, 0)}
        options |= {"seed": request.seed} if request.seed is not None else {}
        asked = self._ask(request.prompt, max_tokens=request.most, temperature=request.temperature, **options)
        return then(asked, lambda answer: sampled(answer, request.stop_ids))

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        asked = self._ask(ids, max_tokens=1, temperature=1.0, logprobs=True, echo=True)
        return then(asked, lambda answer: of_prompt(answer, len(ids)))

    def _ask(self, prompt: Sequence[int], **options: Any) -> Future[Any]:
        options |= {"hotload_retry_interval": LOADING_SECONDS, "hotload_max_retries": LOADING_LOOKS}
        return self.loop.submit(self.sampling.sample_with_prompt_tokens(list(prompt), **options))


class BaseSampler:
    """The base model: answers come from a deployment that has loaded no adapter yet, log-probs from the trainer.

    Args:
        base: connects to the base model on the trainer.
    """

    def __init__(self, answers: Sampler, base: Callable[[], Trained]) -> None:
        self.answers, self._connect = answers, base
        self._base: Trained | None = None
        self._turn = threading.Lock()
        self._threads = ThreadPoolExecutor(MOST_AT_A_TIME, thread_name_prefix="fireworks-base")

    def sample(self, request: SamplingRequest) -> Future[Sampled]:
        return self.answers.sample(request)

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        return self._threads.submit(self._of, ids)

    def _of(self, ids: Sequence[int]) -> list[float]:
        with self._turn:
            if self._base is None:
                self._base = self._connect()
        with failures_translated():
            [result] = self._base.forward([TrainingSequence(ids)]).result()
            return result


def sampled(completions: list[Any], stop_ids: Sequence[int]) -> Sampled:
    """Cuts an answer after the first of `stop_ids`: the service stops at strings, which do not always match ids."""
    [one] = completions
    ids, values = list(one.full_tokens[one.prompt_len :]), one.inference_logprobs
    if values is None or len(values) != len(ids):
        raise ServiceAway("an answer came without the log-probs of its tokens")
    end = next((place + 1 for place, token in enumerate(ids) if token in stop_ids), len(ids))
    return Sampled(ids[:end], list(values)[:end], end < len(ids) or one.finish_reason == "stop")


def of_prompt(completions: list[Any], count: int) -> list[float]:
    [one] = completions
    values = one.inference_logprobs
    if values is None or len(values) < count - 1:
        raise ServiceAway(f"{len(values or [])} log-probs came for {count} ids")
    return [float(value) for value in values[: count - 1]]
