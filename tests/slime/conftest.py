"""A random Qwen3 of a few thousand parameters, arguments for it, and samples."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slime.arguments import Arguments
from slime.types import Sample
from tests.fakes.forks import Forks

VOCABULARY = 64


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fsdp_forks() -> Iterator[Forks]:
    """Yields new processes that have imported the trainer."""
    forks = Forks("slime.training.fsdp", "transformers.models.qwen3.modeling_qwen3", "openclaw_combine.loss")
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> str:
    return write_qwen3(tmp_path_factory.mktemp("model"), 0, vocab_size=VOCABULARY)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        eos_token_id=1,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=1)
    model.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("<pad>", "<eos>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"eos_token": "<eos>", "pad_token": "<pad>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


@pytest.fixture
def make_args(model_folder: str, training_args: Callable[..., Arguments]) -> Callable[..., Arguments]:
    return lambda **changes: training_args(**({"model_folder": model_folder, "lr": 1e-2} | changes))


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    return build_samples


@pytest.fixture
def reward_args() -> Callable[..., SimpleNamespace]:
    """f(**flags): only the flags of rewards."""
    from slime.flags.reward import RewardArguments

    def make(**changes: object) -> SimpleNamespace:
        defaults = asdict(RewardArguments()) | {"rollout_reward_timeout": 5.0, "rollout_seed": 42}
        return SimpleNamespace(**(defaults | changes))

    return make


def build_samples(count: int = 6, seed: int = 0, **changes: object) -> list[Sample]:
    """Returns samples of different lengths with masks of several segments and different temperatures."""
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
