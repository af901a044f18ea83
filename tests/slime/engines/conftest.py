"""A tiny random Qwen3 with its tokenizer, an engine process, and plain Hugging Face as the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from slime.weights.checksum import weights_checksum
from tests.fakes.engine_process import Server
from tests.fakes.tiny_engine_model import plain_model, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), seed=1)


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns another version of the same architecture."""
    return save_model(tmp_path_factory.mktemp("other"), seed=2)


@pytest.fixture(scope="session")
def reference(model_path: Path) -> PreTrainedModel:
    return plain_model(model_path)


@pytest.fixture(scope="session")
def other_reference(other_weights: Path) -> PreTrainedModel:
    return plain_model(other_weights)


LogProbsOf = Callable[..., torch.Tensor]


@pytest.fixture(scope="session")
def log_probs_of() -> LogProbsOf:
    """f(model, ids, temperature=1.0) -> log_softmax(logits / temperature) [T, V] of a plain forward pass."""

    def log_probs(model: PreTrainedModel, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, dim=-1)

    return log_probs


@pytest.fixture(scope="session")
def sampled_log_probs(log_probs_of: LogProbsOf) -> Callable[..., list[float]]:
    """f(model, prompt, output, temperature=1.0) -> the reference log-prob of every output token."""

    def values(
        model: PreTrainedModel, prompt: list[int], output: list[int], temperature: float = 1.0
    ) -> list[float]:
        table = log_probs_of(model, prompt + output, temperature)
        return [table[len(prompt) - 1 + i, token].item() for i, token in enumerate(output)]

    return values


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[Server]:
    """Yields one engine for all tests; each test leaves version 0 live and no request running."""
    absent = str(model_path / "no_such_live_weights.json")
    running = Server(
        model_path, "--chunked-prefill-size", "64", "--max-running-requests", "16", "--weights-file", absent
    )
    yield running
    running.close()


@pytest.fixture
def restarted(model_path: Path, other_weights: Path, tmp_path: Path) -> Iterator[Server]:
    """Yields an engine that was restarted while version 12 is live."""
    checksum = weights_checksum(load_file(other_weights / "model.safetensors"))
    live = tmp_path / "live_weights.json"
    live.write_text(json.dumps({"version": 12, "path": str(other_weights), "checksum": checksum}))
    running = Server(model_path, "--weights-file", str(live))
    yield running
    running.close()
