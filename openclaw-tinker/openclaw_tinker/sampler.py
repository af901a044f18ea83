"""Tinker's SamplingClient as a `slime.rented.service.Sampler`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import tinker
from tinker import types

from slime.rented.sdk import failures_translated, then
from slime.rented.service import Sampled, SamplingRequest, ServiceAway

GREEDY = 0.0


class TinkerSampler:
    """Samples from one set of weights. Reported log-probs are over the whole vocabulary at temperature 1."""

    def __init__(self, client: tinker.SamplingClient) -> None:
        self.client = client

    def sample(self, request: SamplingRequest) -> Future[Sampled]:
        params = types.SamplingParams(
            max_tokens=request.most,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            stop=list(request.stop_ids) or None,
            seed=request.seed,
        )
        with failures_translated():
            asked = self.client.sample(types.ModelInput.from_ints(list(request.prompt)), 1, params)
        return then(asked, _sampled)

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        with failures_translated():
            asked = self.client.compute_logprobs(types.ModelInput.from_ints(list(ids)))
        return then(asked, lambda answer: _of_rest(answer, len(ids)))


def _sampled(response: types.SampleResponse) -> Sampled:
    [sequence] = response.sequences
    if sequence.logprobs is None or len(sequence.logprobs) != len(sequence.tokens):
        raise ServiceAway("an answer came without the log-probs of its tokens")
    return Sampled(list(sequence.tokens), list(sequence.logprobs), sequence.stop_reason == "stop")


def _of_rest(log_probs: list[float | None], count: int) -> list[float]:
    """Returns the log-probs of all ids but the first: Tinker returns null for the first, other servers omit it."""
    values = log_probs[1:] if len(log_probs) == count else log_probs
    known = [value for value in values if value is not None]
    if len(known) != count - 1:
        raise ServiceAway(f"{len(known)} log-probs came for {count} ids")
    return known
