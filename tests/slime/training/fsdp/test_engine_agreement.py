"""Tests that the trainer and the embedded engine compute the same distribution from the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slime.types import Sample
from tests.fakes.fixtures import MakeTrainer


@pytest.fixture
def engine(model_folder: str) -> Iterator[str]:
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
    command += ["--model-path", model_folder, "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=20)


def sampled(url: str, prompt: list[int], temperature: float, version: int) -> Sample:
    params = {"max_new_tokens": 40, "temperature": temperature, "top_p": 0.9, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": params, "return_logprob": True}
    answer = httpx.post(f"{url}/generate", json=body, timeout=60).raise_for_status().json()
    pairs = answer["meta_info"]["output_token_logprobs"]
    return Sample(
        tokens=prompt + answer["output_ids"],
        response_length=len(answer["output_ids"]),
        rollout_log_probs=[pair[0] for pair in pairs],
        version_spans=[(version, 0, len(pairs))],
        temperature=temperature,
        reward=1.0,
    )


@pytest.mark.parametrize("adapter", [False, True])
def test_log_probs_agree_before_and_after_an_update(
    engine: str, make_trainer: MakeTrainer, tmp_path: Path, adapter: bool
) -> None:
    trainer = make_trainer(
        **({"use_lora": True, "lora_rank": 4, "lora_alpha": 32.0, "lora_dropout": 0.0} if adapter else {})
    )
    prompts = [[3, 1, 4, 1, 5], [9, 2, 6], list(range(50))]
    for version in (0, 1, 2) if adapter else (0, 1):
        samples = [
            sampled(engine, prompt, temperature, version) for prompt in prompts for temperature in (0.6, 1.0)
        ]
        metrics = trainer.train(version, samples)
        assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4
        folder = str(tmp_path / f"v{version + 1}")
        checksum = trainer.export_weights(folder, version + 1, whole=not adapter)
        update = {"model_path": folder, "weight_version": str(version + 1)}
        httpx.post(f"{engine}/update_weights_from_disk", json=update, timeout=60).raise_for_status()
        assert httpx.get(f"{engine}/model_info").json()["checksum"] == checksum
