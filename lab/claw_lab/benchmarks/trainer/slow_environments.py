"""Measures the idle time of the trainer while eight slow environments play. Prints one JSON line.

    bash lab/run.sh benchmarks.trainer.slow_environments

train_async.py runs unchanged, with Ray and agents whose environments sleep; the engine only waits (`fake_sglang.py`)
and the trainer takes a fixed time, so nothing needs the processor. The duration of each episode follows from its
prompt. So the end of each rollout can be computed (prompts take places in order), and with it the minimum wait of the
trainer: rollout k + 1 plays while k trains. Exits with 1 if the trainer waits more than 10 % longer.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from claw_lab.benchmarks.trainer.async_overlap import metrics_of, with_stated_parts
from slime.agents import Action, EpisodeLimits, Observation, Outcome, Start, Task, agent

PLACES = 8
TURNS = 3
ANSWER_SECONDS = 0.05
OVER = 1.1


def sleeps(prompt: str) -> list[float]:
    """Returns the seconds that the environment of a prompt takes to start and for each turn: half a second, with a
    tail."""
    drawn = random.Random(prompt)
    return [min(3.0, drawn.lognormvariate(-1.0, 0.8)) for _ in range(1 + TURNS)]


class Sleeper:
    """An environment that only sleeps."""

    async def reset(self, task: Task) -> Start:
        self.left = sleeps(str(task.prompt))
        await asyncio.sleep(self.left.pop(0))
        return Start([{"role": "user", "content": str(task.prompt)}])

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(self.left.pop(0))
        return Observation([{"role": "user", "content": "go on"}], done=not self.left)

    async def evaluate(self) -> Outcome:
        return Outcome(float(len(self.left)), True)

    async def close(self) -> None:
        """Does nothing."""


generate = agent(Sleeper, EpisodeLimits(turns=TURNS), parallel=PLACES)


def seconds_of(prompts: Sequence[str]) -> float:
    """Returns the end of the last of these episodes in seconds, with `PLACES` of them at a time, started in order."""
    free = [0.0] * PLACES
    for prompt in prompts:
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + sum(sleeps(prompt)) + TURNS * ANSWER_SECONDS)
    return max(free)


def run_loop(options: argparse.Namespace) -> None:
    import train_async
    from slime.arguments import parse_args
    from slime.ray.driver import main

    with_stated_parts(ANSWER_SECONDS, 0.0, options.train_seconds)
    folder = Path(options.folder)
    flags = ["--run-dir", str(folder / "run"), "--hf-checkpoint", str(ROOT / "toolcall-rl" / "tiny_model")]
    flags += ["--prompt-data", str(folder / "prompts.jsonl"), "--num-rollout", str(options.rollouts)]
    flags += ["--rollout-batch-size", str(options.batch), "--reward-key", "score"]
    flags += ["--custom-generate-function-path", f"{__file__}:generate", "--disable-rewards-normalization"]
    flags += ["--save-interval", "1000000", "--no-use-tensorboard", "--rollout-max-response-len", "16"]
    main(train_async.train, lambda: parse_args(flags))


def report(options: argparse.Namespace, prompts: Sequence[str]) -> dict[str, Any]:
    """Returns the report; the first rollout, which nothing can overlap, is excluded from all numbers."""
    inner = [
        sys.executable,
        "-m",
        "claw_lab.benchmarks.trainer.slow_environments",
        "--inner",
        f"--folder={options.folder}",
        f"--rollouts={options.rollouts}",
    ]
    inner += [f"--batch={options.batch}", f"--train-seconds={options.train_seconds}"]
    metrics = metrics_of(inner, Path(options.folder) / "run")
    parts = [prompts[begin : begin + options.batch] for begin in range(0, len(prompts), options.batch)]
    plays = [seconds_of(part) for part in parts][1:]
    waited = sum(line["perf/wait_time"] for line in metrics[1:])
    must_wait = sum(max(0.0, play - options.train_seconds) for play in plays)
    steps = [line["perf/train_time"] + line["perf/update_weights_time"] for line in metrics[1:]]
    lasted, must_last = waited + sum(steps), must_wait + options.train_seconds * len(plays)
    return {
        "rollouts": len(plays),
        "episodes": len(plays) * options.batch,
        "environments": PLACES,
        "train_seconds": options.train_seconds,
        "rollout_seconds": round(sum(plays) / len(plays), 3),
        "idle_seconds": round(waited, 2),
        "idle_seconds_bound": round(must_wait, 2),
        "idle_share": round(waited / lasted, 3),
        "idle_share_bound": round(must_wait / must_last, 3),
        "over_the_bound": round(waited / must_wait - 1, 3),
    }


def main_program() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=12)
    parser.add_argument("--batch", type=int, default=16, help="episodes of a rollout")
    parser.add_argument("--train-seconds", type=float, default=2.0)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        run_loop(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="slow_environments_") as folder:
        options.folder = folder
        prompts = [f"prompt {number}" for number in range(options.rollouts * options.batch)]
        lines = [json.dumps({"input": prompt}) for prompt in prompts]
        (Path(folder) / "prompts.jsonl").write_text("\n".join(lines))
        result = report(options, prompts)
    print(json.dumps(result))
    return int(result["over_the_bound"] > OVER - 1)


if __name__ == "__main__":
    sys.exit(main_program())
