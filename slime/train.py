"""Trains in turns: a batch is asked for only when the weights before it are live."""

from __future__ import annotations

from slime.arguments import parse_args
from slime.ray.driver import main
from slime.ray.run import TrainingRun
from slime.ray.train_group import TrainerDied


def train(run: TrainingRun, num_rollout: int) -> None:
    rollout_id = run.start()
    while rollout_id < num_rollout:
        try:
            batch = run.request(rollout_id)
            run.wait(batch)
            run.train(rollout_id, batch)
            run.publish(rollout_id)
            rollout_id += 1
        except TrainerDied as death:
            rollout_id = run.recover(death)


if __name__ == "__main__":
    main(train, parse_args)
