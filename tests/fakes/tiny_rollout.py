"""Hooks of a run without people: generated samples, a small service, and a file that lists the live versions."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample

if TYPE_CHECKING:
    from slime.arguments import Arguments
    from slime.rollout.data_source import DataSource


FAKE_SERVER = Path(__file__).with_name("small_server.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fake-port", type=int, required=True, help="port of the service")
    parser.add_argument("--seconds-a-batch", type=float, default=0.2, help="how long a batch takes to fill")
    parser.add_argument("--spoilt-rollout", type=int, default=None, help="rollout that cannot be trained on")


def start(args: Arguments, endpoints: dict[str, list[str]]) -> list[dict[str, Any]]:
    assert endpoints["policy"], "the engines' addresses are known before anything starts"
    command = [sys.executable, str(FAKE_SERVER), str(args.fake_port)]
    return [
        {
            "name": "gateway",
            "role": "gateway",
            "command": command,
            "url": f"http://127.0.0.1:{args.fake_port}",
        }
    ]


def generate_rollout(
    args: Arguments, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> Any:
    """Returns the same samples for the same rollout id."""
    time.sleep(args.seconds_a_batch)
    samples = [sample(rollout_id, index) for index in range(2)]
    if rollout_id == args.spoilt_rollout:
        samples[0].reward = float("nan")
    return RolloutFnTrainOutput(samples=[[sample] for sample in samples])


def evaluate(args: Arguments, rollout_id: int, data_source: DataSource, evaluation: bool = False) -> Any:
    return RolloutFnEvalOutput(data={"tiny": {"rewards": [0.0, 1.0]}}, metrics={"eval/tiny": rollout_id / 2})


def sample(rollout_id: int, index: int) -> Sample:
    chance = random.Random(rollout_id * 10 + index)
    return Sample(
        group_index=index,
        index=index,
        tokens=[chance.randrange(4, 300) for _ in range(20)],
        response="x",
        response_length=8,
        reward=chance.choice([-1.0, 1.0]),
        rollout_log_probs=[-5.0] * 8,
        status="completed",  # type: ignore[arg-type]
    )


def on_weights_live(args: Arguments, rollout_id: int, version: int, checkpoint: dict[str, Any]) -> None:
    with (Path(args.run_dir) / "live.jsonl").open("a") as file:
        file.write(json.dumps({"rollout_id": rollout_id, "version": version, **checkpoint}) + "\n")
