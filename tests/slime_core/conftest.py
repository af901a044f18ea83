"""A random Qwen3 of a few thousand parameters, arguments for it, and samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from slime.arguments import Arguments
from slime.backends.fsdp import FSDPTrainer
from slime.types import Sample

VOCABULARY = 64


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return str(folder)


@pytest.fixture
def make_args(model_folder: str, tmp_path: Path) -> Callable[..., Arguments]:
    def make(**changes: Any) -> Arguments:
        values: dict[str, Any] = {
            "hf_checkpoint": model_folder,
            "ref_load": model_folder,
            "save": str(tmp_path / "checkpoints"),
            "disable_rewards_normalization": True,
            "lr": 1e-2,
        }
        return Arguments(**(values | changes))

    return make


@pytest.fixture
def make_trainer(make_args: Callable[..., Arguments]) -> Any:
    """Trainers of one rank; they are closed after the test."""
    trainers: list[FSDPTrainer] = []

    def make(**changes: Any) -> FSDPTrainer:
        trainers.append(FSDPTrainer(make_args(**changes)))
        return trainers[-1]

    yield make
    for trainer in trainers[:1]:
        trainer.close()


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
