"""Whether the tokenizer here is that of the model at the service: a wrong one is silent, and trains on noise."""

from __future__ import annotations

import random

from slime.engines.rented.model_folder import ModelFolder
from slime.errors import ConfigError
from slime.rented.service import Sampler

TEXT = "user: What is 2 + 3? assistant: 2 + 3 = 5. user: What is 2 + 4? assistant: 2 + 4 = 6. user: What is 2 + 5?"
LEAST = 2.0
"""Nats a token by which a model prefers a text over its own words in disorder."""


def check_tokenizer(sampler: Sampler, folder: ModelFolder) -> int:
    """Compares how likely the model finds a text and the same ids in disorder; returns how many tokens were asked.

    Raises:
        ConfigError: to the model these ids are no text. ServiceAway, ServiceRefuses.
    """
    if folder.tokenizer is None:
        return 0
    ids: list[int] = folder.tokenizer.encode(TEXT).ids
    mixed = random.Random(0).sample(ids, len(ids))
    text, noise = (sum(sampler.log_probs(asked).result()) / (len(ids) - 1) for asked in (ids, mixed))
    if text - noise < LEAST:
        raise ConfigError(
            f"{folder.path} is not the tokenizer of the model at the service: to the model plain words are noise "
            f"({text:.1f} nats a token, in disorder {noise:.1f}); give --model-path its own"
        )
    return 2 * len(ids)
