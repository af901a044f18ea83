"""A random Qwen3 of a few thousand parameters, arguments for it, and samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from slime.arguments import Arguments
from slime.types import Sample

VOCABULARY = 64


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("model"), 0, vocab_size=VOCABULARY)


@pytest.fixture
def make_args(model_folder: str, training_args: Callable[..., Arguments]) -> Callable[..., Arguments]:
    return lambda **changes: training_args(**({"model_folder": model_folder, "lr": 1e-2} | changes))


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    return build_samples


def build_samples(count: int = 6, seed: int = 0, **changes: Any) -> list[Sample]:
    """Samples of different lengths with masks of several segments and different temperatures."""
    rng = random.Random(seed)
    samples = []
    for index in range(count):
        prompt, response = rng.randint(1, 12), rng.randint(2, 14)
        mask = [rng.choice((0, 1, 1)) for _ in range(response)]
        mask[rng.randrange(response)] = 1
        values: dict[str, Any] = {
            "index": index,
            "group_index": index,
            "tokens": [rng.randrange(VOCABULARY) for _ in range(prompt + response)],
            "response_length": response,
            "loss_mask": mask,
            "reward": rng.choice((1.0, -1.0)),
            "temperature": rng.choice((0.6, 1.0, 1.3)),
        }
        samples.append(Sample(**(values | changes)))
    return samples
