"""Trains while the model serves: a batch trains as soon as it is full, its weights go live while the next one trains."""

from __future__ import annotations

from slime.arguments import Arguments, parse_args
from slime.errors import ConfigError
from slime.ray.driver import main
from slime.ray.run import TrainingRun
from slime.ray.train_group import TrainerDied


def train(run: TrainingRun, num_rollout: int) -> None:
    rollout_id = run.start()
    run.evaluate_before(rollout_id)
    version = run.request(rollout_id) if rollout_id < num_rollout else None
    while version is not None:
        try:
            run.wait(version)
            more = rollout_id + 1 < num_rollout
            # collected while this one trains
            upcoming = run.request(rollout_id + 1) if more else None
            run.train(version)
            run.publish(version, overlap=True)
            run.evaluate_after(rollout_id)
            rollout_id, version = rollout_id + 1, upcoming
        except TrainerDied as death:
            rollout_id = run.recover(death)
            version = run.request(rollout_id) if rollout_id < num_rollout else None
    run.finish()


def parse() -> Arguments:
    args = parse_args()
    if args.colocate:
        raise ConfigError("--colocate takes turns, and this loop overlaps: use train.py, or drop --colocate")
    return args


if __name__ == "__main__":
    main(train, parse)
