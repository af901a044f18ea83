"""Binary RL's connection between the trainer and the rollout buffer: lease a batch, commit it when it is live."""

from __future__ import annotations

from typing import Any

from openclaw.trainer_hooks.lease import commit_live, lease_step
from slime.types import RolloutFnTrainOutput


def generate_rollout_openclaw(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """Leases the judged turns of one training step; nobody's answer waits for it.

    Blocks until `args.rollout_batch_size` samples are ready, or until `args.batch_timeout` seconds have passed since
    the oldest became ready. The same `rollout_id` always gets the same samples. Each turn is a group of its own.

    Raises:
        ValueError: if an evaluation is asked for; conversations have no evaluation set.
    """
    return RolloutFnTrainOutput.of_rows(*lease_step(args, rollout_id, evaluation))


on_weights_live = commit_live
