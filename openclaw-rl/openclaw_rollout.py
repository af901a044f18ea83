"""Binary RL's connection between the trainer and the rollout buffer: lease a batch, commit it when it is live."""

from __future__ import annotations

from typing import Any

from openclaw.rollout import commit_live, lease_batch
from slime.types import RolloutFnTrainOutput, Sample


def generate_rollout_openclaw(
    args: Any, rollout_id: int, data_source: Any, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """Leases the judged turns of one training step; nobody's answer waits for it.

    Blocks until `args.rollout_batch_size` samples are ready, or until `args.batch_timeout` seconds have passed since
    the oldest became ready. The same `rollout_id` always gets the same samples. Each turn is a group of its own.

    Raises:
        ValueError: if an evaluation is asked for; conversations have no evaluation set.
    """
    if evaluation:
        raise ValueError(
            "openclaw_rollout has no evaluation set: talk to the model with openclaw-test/ instead"
        )
    samples = [Sample.from_dict(row) for row in lease_batch(args, rollout_id)]
    scores = [sample.get_reward_value(args.reward_key) for sample in samples]
    metrics = {"rollout/prm_eval_score": sum(scores) / len(scores)}
    return RolloutFnTrainOutput(samples=[[sample] for sample in samples], metrics=metrics)


on_weights_live = commit_live
