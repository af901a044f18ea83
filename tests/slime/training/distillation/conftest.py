"""Random Qwen3 models of a few thousand parameters, trainers that distil, and samples with hints."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from slime.arguments import Arguments
from slime.arguments.rules.distillation import check_distillation
from slime.types import Sample

VOCABULARY = 48


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("model"), 0, vocab_size=VOCABULARY, intermediate_size=48)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("other"), 1, vocab_size=VOCABULARY, intermediate_size=48)


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("small"), 2, vocab_size=40, intermediate_size=48)


@pytest.fixture
def make_args(model_folder: str, training_args: Callable[..., Arguments]) -> Callable[..., Arguments]:
    def make(**changes: Any) -> Arguments:
        values: dict[str, Any] = {"model_folder": model_folder, "logprob_gap_alarm": 0.0, "lr": 3e-3}
        if "topk" in changes.get("loss_spec_path", ""):
            values["distill_topk"] = 4
        args = training_args(**(values | changes))
        check_distillation(args)
        return args

    return make


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    return build_samples


def build_samples(hints: Sequence[int] = (1, 3, 0, 2), seed: int = 0, **changes: object) -> list[Sample]:
    """Returns one sample for each number of hints, of different lengths, masks and temperatures."""
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
