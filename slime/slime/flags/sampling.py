"""Flags: sampling of training answers."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag, needs
from slime.flags.shared import GENERATES_NOTHING


@dataclass
class SamplingArguments:
    """Sampling: parameters of an answer, and concurrency."""

    rollout_temperature: float = flag(
        1.0, "sampling temperature, also applied in training", above=0, main=True
    )
    rollout_top_p: float = flag(1.0, "top-p sampling", above=0, most=1)
    rollout_top_k: int = flag(-1, "top-k sampling; -1: all tokens", least=1, also=-1)
    rollout_max_response_len: int = flag(1024, "maximum tokens of an answer", least=1, main=True)
    rollout_stop: list[str] = flag([], "stop strings", rules=[GENERATES_NOTHING])
    rollout_stop_token_ids: list[int] = flag([], "stop token ids", rules=[GENERATES_NOTHING])
    rollout_skip_special_tokens: bool = flag(False, "omit special tokens from the text of an answer")
    sglang_server_concurrency: int = flag(512, "maximum concurrent requests per engine", least=1)
    over_sampling_batch_size: int | None = flag(
        None,
        "concurrent prompts until a batch is full (default: --rollout-batch-size)",
        least=1,
    )
    partial_rollout: bool = flag(
        False,
        "continue answers interrupted by a full batch; otherwise sample them again",
        rules=[GENERATES_NOTHING],
    )
    mask_offpolicy_in_partial_rollout: bool = flag(
        False,
        "train only the last part of a continued answer",
        rules=[needs("partial_rollout")],
    )
    rollout_sample_timeout: float = flag(
        900.0, "time limit of an answer with its environment, after which it fails", above=0, unit="seconds"
    )
    rollout_reward_timeout: float = flag(
        300.0, "time limit of a reward, after which its sample fails", above=0, unit="seconds"
    )
    rollout_stall_timeout: float = flag(
        1800.0,
        "time without a finished group after which the rollout fails",
        above=0,
        unit="seconds",
    )
    rollout_max_attempts: int = flag(
        3, "attempts per group with a failed sample before it is dropped", least=1
    )
    rollout_drop_limit: int | None = flag(
        None,
        "consecutive dropped groups after which the rollout fails (default: 20 batches, at least 100)",
        least=1,
    )
