"""Random Qwen3 models of a few thousand parameters, trainers that distil, and samples with hints."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from slime.arguments import Arguments
from slime.arguments.check_distillation import check_distillation
from slime.backends.fsdp import FSDPTrainer
from slime.types import Sample

VOCABULARY = 48


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def write_model(folder: Path, seed: int, vocabulary: int = VOCABULARY) -> str:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
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


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), 0)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("other"), 1)


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("small"), 2, vocabulary=40)


@pytest.fixture
def make_args(model_folder: str, tmp_path: Path) -> Callable[..., Arguments]:
    def make(**changes: Any) -> Arguments:
        values: dict[str, Any] = {
            "hf_checkpoint": model_folder,
            "ref_load": model_folder,
            "save": str(tmp_path / "checkpoints"),
            "disable_rewards_normalization": True,
            "logprob_gap_alarm": 0.0,
            "lr": 3e-3,
        }
        if changes.get("loss_type") in ("topk_select", "opd_topk"):
            values["distill_topk"] = 4
        args = Arguments(**(values | changes))
        check_distillation(args)
        return args

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


def build_samples(hints: Sequence[int] = (1, 3, 0, 2), seed: int = 0, **changes: Any) -> list[Sample]:
    """One sample for each number of hints, of different lengths, masks and temperatures."""
    rng = random.Random(seed)
    samples = []
    for index, count in enumerate(hints):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 9))]
        response = [rng.randrange(VOCABULARY) for _ in range(rng.randint(3, 9))]
        mask = [rng.choice((0, 1, 1)) for _ in response]
        mask[rng.randrange(len(mask))] = 1
        hinted = [
            [*prompt, *[rng.randrange(VOCABULARY) for _ in range(2 + h)], *response] for h in range(count)
        ]
        values: dict[str, Any] = {
            "index": index,
            "group_index": index,
            "tokens": prompt + response,
            "response_length": len(response),
            "loss_mask": mask,
            "reward": rng.choice((1.0, -1.0)),
            "temperature": rng.choice((0.6, 1.0, 1.3)),
            "teacher_tokens_candidates": hinted,
        }
        samples.append(Sample(**(values | changes)))
    return samples
