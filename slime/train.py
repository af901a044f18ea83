"""Trains in turns: a batch is asked for only when the weights before it are live."""

from __future__ import annotations

from slime.arguments import parse_args
from slime.ray.driver import main
from slime.ray.run import TrainingRun
from slime.ray.train_group import TrainerDied


def train(run: TrainingRun, num_rollout: int) -> None:
    rollout_id = run.start()
    run.evaluate_before(rollout_id)
    while rollout_id < num_rollout:
        try:
            run.offload_trainers()
            version = run.request(rollout_id)
            run.wait(version)
            run.train(version)
            run.publish(version)
            run.evaluate_after(rollout_id)
            rollout_id += 1
        except TrainerDied as death:
            rollout_id = run.recover(death)
    run.finish()


if __name__ == "__main__":
    main(train, parse_args)
