"""Flags: division of a rollout into steps and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import excludes, flag


@dataclass
class BatchArguments:
    """Steps and micro-batches."""

    global_batch_size: int | None = flag(
        None,
        "trajectories (not samples) per optimizer step (default: from --num-steps-per-rollout, else all)",
        least=1,
        main=True,
    )
    num_steps_per_rollout: int | None = flag(
        None, "optimizer steps per full rollout; sets --global-batch-size", least=1
    )
    trim_to_global_batch: bool = flag(
        False, "drop samples beyond full steps, instead of training a smaller last step"
    )
    use_dynamic_batch_size: bool = flag(True, "pack micro-batches by tokens; otherwise count samples")
    max_tokens_per_gpu: int = flag(
        8192,
        "maximum tokens of a packed micro-batch; a longer sample gets a separate one",
        env=("MAX_TOKENS_PER_GPU",),
        least=1,
        main=True,
    )
    merge_prefixes: bool = flag(True, "compute common prefixes of a micro-batch's samples once")
    micro_batch_size: int | None = flag(
        None,
        "samples per micro-batch with --no-use-dynamic-batch-size (default: 1)",
        least=1,
        rules=[
            excludes(
                use_dynamic_batch_size=True,
                text="{flag} counts samples, but micro-batches are packed by tokens; drop it or add "
                "--no-use-dynamic-batch-size",
            )
        ],
    )
    log_probs_chunk_size: int = flag(
        -1,
        "rows of logits in memory at a time, recomputed for gradients; -1: all",
        least=1,
        also=-1,
    )
    balance_data: bool = flag(False, "balance micro-batches over training processes by tokens")
