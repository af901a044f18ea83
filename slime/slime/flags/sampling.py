"""Flags: how answers are generated for training."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag, needs
from slime.flags.shared import GENERATES_NOTHING


@dataclass
class SamplingArguments:
    """Sampling: one answer, and how many are asked for at once."""

    rollout_temperature: float = flag(
        1.0, "sampling temperature; training divides the logits by the same number", above=0, main=True
    )
    rollout_top_p: float = flag(
        1.0, "sample from the most likely tokens that make up this probability", above=0, most=1
    )
    rollout_top_k: int = flag(-1, "sample from this many most likely tokens; -1 from all", least=1, also=-1)
    rollout_max_response_len: int = flag(1024, "most tokens of an answer", least=1, main=True)
    rollout_stop: list[str] = flag([], "texts that end an answer", rules=[GENERATES_NOTHING])
    rollout_stop_token_ids: list[int] = flag([], "token ids that end an answer", rules=[GENERATES_NOTHING])
    rollout_skip_special_tokens: bool = flag(False, "leave special tokens out of the text of an answer")
    sglang_server_concurrency: int = flag(512, "requests that one engine gets at the same time", least=1)
    over_sampling_batch_size: int | None = flag(
        None,
        "prompts that are started at a time while a batch is not full (default: --rollout-batch-size)",
        least=1,
    )
    partial_rollout: bool = flag(
        False,
        "continue answers that a full batch interrupted; otherwise sample them again",
        rules=[GENERATES_NOTHING],
    )
    mask_offpolicy_in_partial_rollout: bool = flag(
        False,
        "of an answer that was continued, train only on the tokens of the last continuation",
        rules=[needs("partial_rollout")],
    )
    rollout_sample_timeout: float = flag(
        900.0, "seconds for one answer, environment included; later it has failed", above=0, unit="seconds"
    )
    rollout_reward_timeout: float = flag(
        300.0, "seconds for one reward; later its sample has failed", above=0, unit="seconds"
    )
    rollout_stall_timeout: float = flag(
        1800.0,
        "seconds without a finished group after which a rollout ends with an error",
        above=0,
        unit="seconds",
    )
    rollout_max_attempts: int = flag(
        3, "times that a group with a failed sample is tried before it is dropped", least=1
    )
    rollout_drop_limit: int | None = flag(
        None,
        "consecutive dropped groups before the rollout fails (default: 20 batches, at least 100)",
        least=1,
    )
