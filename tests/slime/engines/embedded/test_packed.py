"""Tests packed linear weights: the same bits as plain ones, for each version and each trial."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.packed import is_packed
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.embedded.trial import WeightTrial
from slime.engines.requests import GenerateRequest, TryRequest

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    not is_packed(CPU, torch.bfloat16), reason="this processor does not multiply in bf16"
)
PROMPTS = [random.Random(seed).choices(range(4, 300), k=9 + seed) for seed in range(5)]


def started(folder: Path) -> EngineService:
    service = EngineService(EmbeddedArguments(model_path=str(folder), device="cpu", dtype="bfloat16"))
    service.weights._replace_weights = lambda install: install()  # no decode thread runs here
    return service


def in_bf16(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy)
    weights = {name: one.bfloat16() for name, one in load_file(folder / "model.safetensors").items()}
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


@pytest.fixture
def model(model_path: Path, tmp_path: Path) -> Path:
    return in_bf16(model_path, tmp_path / "model")


@pytest.fixture
def other(other_weights: Path, tmp_path: Path) -> Path:
    return in_bf16(other_weights, tmp_path / "other")


@pytest.fixture
def service(model: Path) -> EngineService:
    return started(model)


def answers(service: EngineService) -> list[tuple[list[int], list[object]]]:
    """Returns ids and log-probs of greedy answers to all prompts, decoded together."""
    sampling = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    rows = [
        service.sequence(
            GenerateRequest.model_validate(
                {"input_ids": prompt, "return_logprob": True, "sampling_params": sampling}
            )
        )
        for prompt in PROMPTS
    ]
    for row in rows:
        service.engine.scheduler.add(row)
    with torch.inference_mode():
        while service.engine.scheduler.has_work:
            service.engine.step(EngineStep())
    return [(list(row.output_ids), list(row.output.tokens)) for row in rows]


def plain(service: EngineService) -> list[tuple[list[int], list[object]]]:
    """Returns the same answers by the plain weights."""
    packed, service.model.packed = service.model.packed, {}
    try:
        return answers(service)
    finally:
        service.model.packed = packed


def test_packed_weights_give_the_bits_of_plain_ones(service: EngineService) -> None:
    layers = [name for name, one in service.model.module.named_modules() if isinstance(one, torch.nn.Linear)]
    assert set(service.model.packed) == set(layers)
    assert "lm_head" in layers
    assert answers(service) == plain(service)


def test_each_version_has_its_own(service: EngineService, other: Path) -> None:
    before = answers(service)
    service.weights.prepare(str(other), 1)
    assert answers(service) == before
    service.weights.switch(1)
    assert answers(service) == plain(service) == answers(started(other)) != before


def test_a_trial_multiplies_with_the_weights_that_it_tries(service: EngineService, other: Path) -> None:
    service.weights.prepare(str(other), 1)
    trial = WeightTrial(service)

    def tried(version: int, **asked: str) -> list[list[int]]:
        body = {"prompts": PROMPTS, "max_new_tokens": 12, "weight_version": version, **asked}
        return [one["ids"] for one in trial.answers(TryRequest.model_validate(body))]

    def begins(whole: EngineService, parts: list[list[int]]) -> bool:
        """A trial's answer ends at the model's own end, if it comes earlier."""
        return all(row[0][: len(part)] == part for row, part in zip(answers(whole), parts, strict=True))

    assert begins(service, tried(0))
    assert begins(started(other), tried(1)) and tried(1) != tried(0)
    assert tried(2, model_path=str(other)) == tried(1)
    assert begins(service, tried(0))


def test_without_memory_for_the_copies_the_plain_weights_serve(
    model: Path, service: EngineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    small = started(model)
    assert small.model.packed == {}
    assert answers(small) == answers(service)
