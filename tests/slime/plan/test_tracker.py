"""Compares the planner with torch's memory tracker on the project's own modules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from claw_lab.benchmarks.trainer import plan_vs_tracker as tool
from slime.losses.dense import BLOCK_GPU
from slime.plan.memory import LOGIT_BLOCK
from slime.plan.shape import KNOWN


def test_the_plan_includes_the_block_of_logits() -> None:
    assert LOGIT_BLOCK == BLOCK_GPU


@pytest.mark.parametrize(
    "layout",
    [
        {"gpus": 4, "tokens": 16384, "rows": 1024, "checkpointing": True},
        {"gpus": 4, "tokens": 4096, "entropy": True},
    ],
    ids=["a layer is the fullest", "the head is the fullest"],
)
def test_planned_memory_is_0_to_15_percent_above_the_measured_one(layout: dict[str, Any]) -> None:
    config = KNOWN["Qwen3-4B"] | {"num_hidden_layers": 2}
    plan = tool.plan_of(config, "two layers of Qwen3-4B", layout)
    assert 1.0 <= tool.planned(plan) / tool.measured(config, plan) <= 1.15


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("Qwen3-4B", {"tokens": 16384, "rows": 1024, "checkpointing": True}),
        ("Qwen3-8B", {"tokens": 2048, "rows": 1024, "checkpointing": True}),
        ("Qwen3-4B", {"tokens": 2048, "checkpointing": True}),
        ("Qwen3-30B-A3B", {"tokens": 16384, "rows": 1024, "checkpointing": True}),
    ],
    ids=["a layer", "gradients of the head", "all logits", "a mixture of experts"],
)
def test_planned_memory_of_megatron_matches_the_measured_one(name: str, layout: dict[str, Any]) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: see requirements-dev.txt")
    config = KNOWN[name] | {"num_hidden_layers": 2}
    if "num_experts" in config:
        config["num_experts"] = 8
    plan = tool.plan_of(config, f"two layers of {name}", {"gpus": 4, "tp": 2, **layout})
    assert 1.0 <= tool.planned(plan) / tool.measured(config, plan) <= 1.15


@pytest.mark.parametrize(
    ("tp", "layout"),
    [
        (2, {"tokens": 32768, "rows": 1024, "checkpointing": True}),
        (1, {"tokens": 4096, "checkpointing": True}),
        (2, {"tokens": 4096, "entropy": True}),
    ],
    ids=["a layer", "all logits", "with their entropy"],
)
def test_planned_memory_of_context_parallel_ranks_matches_the_measured_one(
    monkeypatch: pytest.MonkeyPatch, tp: int, layout: dict[str, Any]
) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: see requirements-dev.txt")
    from slime.training.core.shared_rows import OwnRows
    from slime.training.megatron.model import PackedGPT

    def own_rows(core: Any, output: Any, packed: Any) -> tuple[Any, OwnRows]:
        """Returns the first half of the targets, since fake tensors have no values to search."""
        numbers = torch.arange(len(packed.targets) // 2)
        hidden = core.own_tokens(output)
        return hidden[packed.logit_positions[numbers]], OwnRows(
            numbers, len(packed.targets), core.parallel.cp.group
        )

    monkeypatch.setattr(tool, "Arguments", partial(tool.Arguments, context_parallel_size=2))
    monkeypatch.setattr(PackedGPT, "own_rows", own_rows)
    config = KNOWN["Qwen3-4B"] | {"num_hidden_layers": 2}
    plan = tool.plan_of(config, "two layers of Qwen3-4B", {"gpus": 4, "tp": tp, **layout})
    assert plan.division is not None
    plan = replace(plan, division=replace(plan.division, cp=2, sequence_parallel=tp > 1))
    assert 1.0 <= tool.planned(plan) / tool.measured(config, plan) <= 1.15
