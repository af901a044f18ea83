"""Trains while the model serves: a batch trains as soon as it is full, its weights go live right after."""

from __future__ import annotations

from slime.arguments import parse_args
from slime.ray.driver import main
from slime.ray.run import TrainingRun
from slime.ray.train_group import TrainerDied


def train(run: TrainingRun, num_rollout: int) -> None:
    rollout_id = run.start()
    batch = run.request(rollout_id)
    while rollout_id < num_rollout:
        try:
            run.wait(batch)
            upcoming = run.request(rollout_id + 1)  # collected while this one trains
            run.train(rollout_id, batch)
            run.publish(rollout_id)
            rollout_id, batch = rollout_id + 1, upcoming
        except TrainerDied as death:
            rollout_id = run.recover(death)
            batch = run.request(rollout_id)


if __name__ == "__main__":
    main(train, parse_args)
