"""Rules and names shared by flags of several groups."""

from __future__ import annotations

from typing import Any

from claw_base.settings.rules import Rule, excludes

DEFAULT_ROLLOUT = "slime.rollout.sglang_rollout.generate_rollout"
FINE_TUNING = "slime.rollout.sft_rollout.generate_rollout"
GENERATING = (DEFAULT_ROLLOUT, "slime.rollout.fully_async_rollout.generate_rollout_fully_async")
PLAIN_SOURCE = "slime.rollout.data_source.RolloutDataSource"
BUFFERED_SOURCE = "slime.rollout.data_source.RolloutDataSourceWithBuffer"
SOURCES = (PLAIN_SOURCE, BUFFERED_SOURCE)
KEEPS_MEMORY = "does not report whether it has released its memory; use sglang or embedded"
"""Why vLLM does not support offloading."""

GENERATES_NOTHING = excludes(
    rollout_function_path=FINE_TUNING,
    text="{flag} has no effect: supervised fine-tuning neither generates answers nor uses rewards; drop it",
)


def on_gpus(what: str) -> Rule:
    """Rejects a flag that does `what` on GPUs if training runs on the CPU."""
    return excludes(
        actor_num_gpus_per_node=0, text=f"{{flag}} {what}, but this run trains on the CPU; drop it"
    )


def not_by_megatron(reason: str, **equal: Any) -> Rule:
    """Rejects settings that the Megatron backend does not support, if the flags in `equal` have these values."""
    text = f"{{flag}} is not supported by --train-backend megatron: {reason}; drop it"
    return excludes(train_backend="megatron", text=text, **equal)
