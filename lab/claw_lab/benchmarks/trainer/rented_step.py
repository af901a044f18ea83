"""Measures the cost of one training step at a remote service, without the time of the service. Prints one JSON line.

    bash lab/run.sh benchmarks.trainer.rented_step --model openclaw-test/tiny_claw/model

The service answers at once and computes nothing. The cost of SDK and network (HTTP, serialisation) is not included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class InstantTrained:
    """An adapter whose log-probs are all -1."""

    def forward(self, passages: Sequence[Any]) -> Future[list[list[float]]]:
        return done([[-1.0] * (len(one.ids) - 1) for one in passages])

    def policy_gradient(self, loss: str, clip: tuple[float, float], passages: Sequence[Any]) -> Future[Any]:
        return self.forward(passages)

    def step(self, adam: Any) -> Future[dict[str, float]]:
        return done({})


class InstantSampler:
    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        return done([-1.0] * (len(ids) - 1))


class InstantService:
    """A service that answers at once."""

    exclusive = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def check(self) -> None:
        """Reports that every model exists."""

    def new(self) -> InstantTrained:
        return InstantTrained()

    def sampler(self, address: str | None) -> InstantSampler:
        return InstantSampler()


def measured(model: str, samples: int, tokens: int, steps: int) -> dict[str, Any]:
    """Returns the milliseconds of a step, without the first one: medians, and the maximum wall time."""
    from slime.arguments import parse_args
    from slime.rented.trainer import RentedTrainer
    from slime.types import Sample

    sys.modules["rented_step"] = sys.modules[__name__]
    words = [
        *(
            "--hf-checkpoint",
            model,
            "--run-dir",
            tempfile.mkdtemp(),
            "--train-backend",
            "rented",
            "--backend",
            "rented",
        ),
        *("--rented-service", "rented_step:InstantService", "--rollout-batch-size", str(samples)),
        *("--disable-rewards-normalization", "--disable-rollout-global-dataset"),
        *("--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"),
        *("--use-kl-loss", "--kl-loss-coef", "0.02", "--kl-loss-type", "low_var_kl"),
    ]
    trainer = RentedTrainer(parse_args(words, {}))
    trainer.load()
    half = tokens // 2
    batch = [
        Sample(
            index=i,
            group_index=i,
            tokens=[5] * tokens,
            response_length=half,
            loss_mask=[1] * half,
            reward=1.0,
            temperature=1.0,
            rollout_log_probs=[-1.0] * half,
        )
        for i in range(samples)
    ]
    wall, processor = [], []
    for number in range(steps + 1):
        began, worked = time.perf_counter(), time.process_time()
        trainer.train(number, batch)
        wall.append(1e3 * (time.perf_counter() - began))
        processor.append(1e3 * (time.process_time() - worked))
    return {
        "samples": samples,
        "tokens": tokens,
        "wall_ms": round(statistics.median(wall[1:]), 1),
        "longest_wall_ms": round(max(wall[1:]), 1),
        "processor_ms": round(statistics.median(processor[1:]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of the tokenizer and the configuration")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument(
        "--tokens", type=int, default=1000, help="tokens of each sample, half of them trained"
    )
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    print(json.dumps(measured(args.model, args.samples, args.tokens, args.steps)))


if __name__ == "__main__":
    main()
