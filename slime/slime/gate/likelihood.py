"""Stage b: compares the likelihood of stored answers under the candidate with that under the live weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from slime.types import Sample

LIKED, RECENT, QUESTION, WISH, FACT = "liked", "recent", "question", "wish", "fact"
"""Purpose of a sample, from `gate` in its metadata: an answer that people liked; one of the newest answers; a
prompt to be answered, whose `label` must occur in the answer; a request for a form, whose `label` is a
regular expression that a correct answer matches somewhere; or a question of a pool, of which each update gets
different ones."""

MOST = 1.0
"""Maximum nats of a token's part of the KL. Among a few short answers, a single learned or unlearned token (6
nats were seen) would otherwise decide. A distant candidate changes many tokens."""

Known = Mapping[str, Sequence[float]]
"""Log-probs of an answer's tokens by the sample's key."""


def key(sample: Sample) -> str:
    """Returns the sample's key, stable over examinations."""
    return str(sample.metadata.get("key", sample.index))


def lasting(sample: Sample) -> str:
    """Returns a key of a prompt and its expected answer, independent of other rows in the file."""
    words = f"{sample.tokens[: sample.prompt_length]} {sample.label}"
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def purpose(sample: Sample) -> str:
    return str(sample.metadata.get("gate", RECENT))


def measure_likelihood(samples: Sequence[Sample], now: Known, live: Known) -> dict[str, float]:
    """Compares the candidate's log-probs (`now`) with those of the live weights.

    Args:
        live: log-probs under the live weights, if known. Recent answers fall back on the engine's own
            log-probs.

    Returns:
        `kl`: nats per token from the live weights to the candidate on recent answers, by the never negative
            estimator r - 1 - log r with r = candidate / live (Schulman 2020, "Approximating KL divergence");
            at most `MOST` per token.
        `liked_loss`: nats per token by which liked answers became less likely, mean over the answers.
        `liked`, `recent`: number of compared answers. A measure without answers is omitted.
    """
    recent = [
        (then, now[key(sample)])
        for sample in samples
        if purpose(sample) == RECENT and (then := live.get(key(sample), sample.rollout_log_probs))
    ]
    liked = [
        (live[key(sample)], now[key(sample)])
        for sample in samples
        if purpose(sample) == LIKED and live.get(key(sample))
    ]
    measurements: dict[str, float] = {}
    terms = [
        _k3(new - old) for old_ones, new_ones in recent for old, new in zip(old_ones, new_ones, strict=True)
    ]
    if terms:
        measurements |= {"kl": sum(terms) / len(terms), "recent": float(len(recent))}
    if liked:
        falls = [(sum(old) - sum(new)) / len(old) for old, new in liked]
        measurements |= {"liked_loss": sum(falls) / len(falls), "liked": float(len(liked))}
    return measurements


def _k3(log_ratio: float) -> float:
    """Returns the bounded estimate of the KL; non-finite values are not bounded."""
    if not math.isfinite(log_ratio):
        return math.nan
    return min(MOST, math.exp(min(log_ratio, 80.0)) - 1.0 - log_ratio)
