"""Flags: where samples come from."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.field import flag

UNBOUNDED = 10**8


@dataclass
class RolloutArguments:
    """Rollout and hooks. Hooks are named package.module.NAME or folder/file.py:NAME."""

    rollout_function_path: str | None = flag(
        None, "f(args, rollout_id, data_source, evaluation=False) -> RolloutFnTrainOutput: one batch"
    )
    service_path: list[str] = flag(  # noqa: RUF009
        [], "start(args, endpoints) -> list of server processes for slime to start and watch; may be repeated"
    )
    on_weights_live_path: str | None = flag(
        None, "f(args, rollout_id, version, checkpoint), called after every engine confirmed a version"
    )
    disable_rollout_global_dataset: bool = flag(
        False, "no prompt data set: the rollout function has its own source"
    )
    num_rollout: int = flag(UNBOUNDED, "rollouts to train; a run that is resumed counts those before")
    rollout_batch_size: int = flag(4, "prompts of one rollout")
    n_samples_per_prompt: int = flag(1, "samples of one prompt, which form a group")
    reward_key: str | None = flag(None, "which of several rewards to train on")
    update_weights_interval: int = flag(1, "make weights live every so many rollouts")
