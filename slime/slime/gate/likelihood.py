"""Stage b: compares the likelihood of stored answers under the candidate with that under the live weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from slime.types import Sample

LIKED, RECENT, QUESTION, WISH, FACT = "liked", "recent", "question", "wish", "fact"
"""The use of a sample, in its metadata under `gate`: an answer that people liked, one of the newest answers, a
prompt without answer that is to be answered (its `label` must occur in the answer), a prompt that asks for a form
(its `label` is a regular expression that such an answer matches somewhere), or a question of a pool from which each
update gets others (`label` as of a question)."""

MOST = 1.0
"""Nats to which a token's part of the KL is limited: among a few short answers, a single learned or unlearned one (6
nats were seen) would otherwise decide. A candidate that is far away moves many."""

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
        live: of the live weights, as far as known. Recent answers fall back on the engine's own log-probs.

    Returns:
        `kl`: nats a token, of the live weights to the candidate on recent answers, by the estimator r - 1 - log r
            with
            r = candidate / live (Schulman 2020, "Approximating KL divergence": never negative), a token at most
                `MOST`.
        `liked_loss`: nats a token by which liked answers became less likely, mean over the answers.
        `liked`, `recent`: how many were compared. A measure without answers is left out.
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
    """Returns the bounded estimate of the KL; values that are not finite are never bounded."""
    if not math.isfinite(log_ratio):
        return math.nan
    return min(MOST, math.exp(min(log_ratio, 80.0)) - 1.0 - log_ratio)
