"""Tests that an engine on a trainer's GPU has the same number of tokens, whichever starts first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.errors import ConfigError
from slime.plan.hardware import GIB, GPUS, Gpu
from slime.plan.memory import EngineMemory, TrainerMemory, trainer_parts
from slime.plan.model_servers import ModelServers, mem_fraction
from slime.plan.of_arguments import carrying, share_words
from slime.plan.placement_plan import Batch, MemoryPlan, Server, problems
from slime.plan.report import as_text
from slime.plan.shape import read_shape
from slime.ray.servers import specs
from slime.ray.servers.specs import own_words

CARD = Gpu("24GB", 24.0, 312.0)
QWEN3_4B = read_shape("Qwen3-4B")


def flags(**values: object) -> Any:
    usual: dict[str, Any] = {
        "colocate": True,
        "rollout_num_gpus": 1,
        "rollout_num_gpus_per_engine": 1,
        "rollout_backend": "sglang",
        "engine_words": {"rollout": ["--sglang-mem-fraction-static", "0.45"]},
        "hf_checkpoint": "Qwen3-4B",
        "context_length": 16384,
    }
    return SimpleNamespace(**(usual | values))


def value_of(words: list[str], name: str) -> str:
    return [words[i + 1] for i, word in enumerate(words) if word == name][-1]


def sglang_tokens(free_before: float, words: list[str]) -> int:
    """Returns the number of tokens by SGLang 0.5.23's rule (kv_cache_configurator.py): the memory free after the
    weights, minus the unshared part of the memory free before them, at most --max-total-tokens."""
    weights = 2 * QWEN3_4B.parameters
    fraction = float(value_of(words, "--sglang-mem-fraction-static"))
    left = (free_before - weights) - free_before * (1 - fraction)
    assert left > 0, "Loaded weights leave no GPU memory for the KV cache"
    found = int(left / QWEN3_4B.kv_bytes)
    cap = "--sglang-max-total-tokens"
    return min(found, int(value_of(words, cap))) if cap in words else found


def test_a_restart_next_to_a_live_trainer_gets_as_many_tokens_as_the_first_start() -> None:
    trainer = TrainerMemory(QWEN3_4B, 1, 4096, rows=256, checkpointing=True, lora_rank=16, four_bit=True)
    beside = sum(trainer_parts(trainer).values())
    given = flags().engine_words["rollout"]
    words = [*given, *share_words(flags(), CARD)]
    alone = (24 - 0.5) * GIB
    assert sglang_tokens(alone - beside, words) == sglang_tokens(alone, words) >= 16384
    with pytest.raises(AssertionError, match="no GPU memory"):
        sglang_tokens(alone - beside, given)  # tokens by the share alone


def test_every_start_of_an_engine_has_the_same_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "smallest_gpu", lambda: CARD)
    policy = ModelServers("rollout", "engine", "engine", "Qwen3-4B", 1, 1)
    streams, words = (given := own_words(flags(), policy))[:3], given[3:]
    assert streams[0] == "--sglang-stream-interval"
    assert words[:2] == ["--sglang-mem-fraction-static", "0.45"]
    assert words[2] == "--sglang-max-total-tokens" and words[4:] == ["--sglang-mem-fraction-static", "0.9"]
    assert own_words(flags(), replace(policy, part="prm")) == [*streams, *words[:2]]


def test_vllm_gets_its_cache_size_in_bytes() -> None:
    words = share_words(flags(rollout_backend="vllm", engine_words={}), GPUS["H100"])
    assert words[0] == "--vllm-kv-cache-memory-bytes"
    assert int(words[1]) == int(0.92 * 79.1 * GIB - 2 * QWEN3_4B.parameters)


@pytest.mark.parametrize(
    "changes",
    [
        {"colocate": False},
        {"rollout_num_gpus": 0},
        {"rollout_backend": "embedded"},
        {"engine_words": {"rollout": ["--sglang-max-total-tokens=9000"]}},
    ],
)
def test_for_a_single_engine_or_a_user_setting_the_share_is_not_changed(
    changes: dict[str, Any],
) -> None:
    assert share_words(flags(**changes), CARD) == []
    assert share_words(flags(), None) == []


def test_for_an_unknown_architecture_the_share_is_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert share_words(flags(hf_checkpoint=str(tmp_path)), CARD) == []
    assert "has the model_type gpt2" in caplog.text


def test_a_memory_share_too_small_for_the_weights_is_rejected_before_the_start() -> None:
    small = flags(engine_words={"rollout": ["--sglang-mem-fraction-static", "0.3"]})
    with pytest.raises(
        ConfigError, match=r"is too small for the 7.5 GiB of its weights.*MEM_FRACTION_STATIC"
    ):
        share_words(small, CARD)


def test_the_memory_sharer_counts_on_a_shared_gpu() -> None:
    trainer = TrainerMemory(QWEN3_4B, 8, 4096, rows=1024, checkpointing=True)
    engine = EngineMemory(QWEN3_4B, 1, 0.5, 32768)
    need = sum(trainer_parts(trainer).values()) / GIB
    plan = MemoryPlan(
        Gpu("exact", 1.0, 1.0), 8, trainer, (Server("policy", engine, 8),), Batch(16, 8192), colocated=True
    )
    fits = replace(plan, gpu=Gpu("exact", (need + 1.5 + 0.1 - 0.25) / (0.95 - 0.5), 1.0))
    assert problems(fits) == []
    assert "the trainer needs" in problems(replace(fits, carrying=1.5 * GIB))[0]
    assert "1.5 GiB on each GPU of the policy" in as_text(replace(fits, carrying=1.5 * GIB))


@pytest.mark.parametrize(
    ("changes", "gib"),
    [({}, 1.5), ({"update_weight_transport": "disk"}, 0), ({"rollout_backend": "embedded"}, 0)],
)
def test_a_memory_sharer_is_planned_with_a_cuda_context_and_two_buckets(
    changes: dict[str, Any], gib: float
) -> None:
    given = {"update_weight_transport": "tensor", "update_weight_buffer_size": 512 * 2**20}
    assert carrying(flags(**(given | changes))) == gib * GIB


def test_a_trainer_that_does_not_fit_next_to_an_engine_gets_the_share_that_would_fit() -> None:
    trainer = TrainerMemory(QWEN3_4B, 8, 32768, rows=1024, checkpointing=True)
    engine = EngineMemory(QWEN3_4B, 1, 0.8, 32768)
    plan = MemoryPlan(
        GPUS["H100"], 8, trainer, (Server("policy", engine, 8),), Batch(16, 8192), colocated=True
    )
    [said] = problems(plan)
    assert "MEM_FRACTION_STATIC=0." in said
    share = float(said.split("MEM_FRACTION_STATIC=")[1].split(")")[0])
    assert problems(replace(plan, servers=(Server("policy", replace(engine, fraction=share), 8),))) == []


@pytest.mark.parametrize("share", ["1.5", "0", "-0.2"])
def test_an_invalid_memory_share_is_rejected(share: str) -> None:
    words = {"rollout": ["--sglang-mem-fraction-static", share]}
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        mem_fraction(flags(engine_words=words))
