"""Log-probs of the distribution that trainer and embedded engine mean: scaled by temperature, before truncation.

vLLM offers the model's own (temperature 1) or those after top-k and top-p, whose sum over the kept tokens is 1. Neither
can be compared with what a trainer computes for a sampled token.
"""

from __future__ import annotations

from typing import Any


def scaled(sampler: type[Any]) -> type[Any]:
    """vLLM's sampler class with log_softmax(penalised and biased logits / temperature) as its log-probs; greedy rows are
    not scaled."""

    class ScaledLogProbs(sampler):  # type: ignore[misc]
        _scaled: Any = None

        def sample(self, logits: Any, sampling_metadata: Any, *more: Any, **options: Any) -> tuple[Any, Any]:
            wanted = sampling_metadata.max_num_logprobs is not None or sampling_metadata.logprob_token_ids
            self._wanted, self._scaled = bool(wanted), None
            sampled, _ = super().sample(logits, sampling_metadata, *more, **options)
            if wanted and self._scaled is None:  # all rows are greedy
                self._scaled = self.compute_logprobs(logits)
            return sampled, self._scaled

        def apply_temperature(self, logits: Any, *more: Any, **options: Any) -> Any:
            logits = super().apply_temperature(logits, *more, **options)
            if self._wanted:
                self._scaled = self.compute_logprobs(logits)
            return logits

    return ScaledLogProbs
