"""On-policy distillation's connection between the trainer and the rollout buffer."""

from __future__ import annotations

from typing import Any

from openclaw.trainer_hooks.lease import commit_live, lease_step
from slime.types import RolloutFnTrainOutput


def generate_rollout_openclaw_opd(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """Leases the samples of one training step, each with what its teachers see; see `lease_batch`.

    Raises:
        ValueError: if an evaluation is asked for; conversations have no evaluation set.
    """
    return RolloutFnTrainOutput.of_rows(*lease_step(args, rollout_id, evaluation))


on_weights_live = commit_live
