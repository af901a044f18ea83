"""Measures the share of the time saved by train_async.py, of the time that overlap can save. Prints one JSON line.

    bash lab/run.sh benchmarks.trainer.async_overlap

Both loops run unchanged, with Ray, the default rollout, its reward and the weight update; the engine only waits
(`fake_sglang.py`, the same latencies in both runs) and the trainer takes a fixed time, so neither needs the
processor. The trace of the sync run (seconds of each batch and training step) gives the best result of an overlap by
one rollout: the next batch is requested when one is complete, and the complete one trains meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from claw_lab import environment


class StatedTrainers:
    """A trainer group whose step only takes `seconds`."""

    seconds = 1.0

    def __init__(self, args: Any, placement: Any) -> None:
        pass

    def load(self) -> Any:
        from slime.ray.train_actor import TrainerState

        return TrainerState(-1, 0, None)

    def train(self, rollout_id: int, samples: Any) -> dict[str, float]:
        time.sleep(self.seconds)
        return {"loss": 0.0}

    def export_weights(self, folder: Path, version: int, whole: bool = True) -> str:
        from claw_lab.benchmarks.trainer.fake_sglang import checksum

        folder.mkdir(parents=True, exist_ok=True)
        return checksum(version)

    def save(self, *args: Any, **kwargs: Any) -> Path:
        return Path()

    def check(self) -> None:
        """Does nothing; this trainer cannot die."""

    def finish_save(self) -> None:
        """Does nothing; this trainer writes no files."""


async def reward(args: Any, sample: Any, **kwargs: Any) -> float:
    return float(sample.tokens[-1] % 2)


def prompt_model(folder: Path) -> Path:
    """Creates a folder with a configuration and a byte tokenizer; no weights are needed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "config.json").write_text('{"model_type": "qwen3", "max_position_embeddings": 4096}')
    return folder


def with_stated_parts(median: float, sigma: float, train_seconds: float) -> None:
    """Replaces the engine and the trainer of this process by ones that only wait."""
    import slime.ray.components as components
    import slime.ray.servers.specs as specs
    from slime.processes.servers import ServerSpec

    def engine_spec(args: Any, server: Any, index: int, manager: Any) -> ServerSpec:
        port = manager.choose_port("engine-0")
        command = [sys.executable, "-m", "claw_lab.benchmarks.trainer.fake_sglang", "--port", str(port)]
        command += ["--median", str(median), "--sigma", str(sigma)]
        return ServerSpec("engine-0", "engine", command, f"http://127.0.0.1:{port}")

    StatedTrainers.seconds = train_seconds
    specs.engine_spec = engine_spec
    components.TrainGroup = StatedTrainers  # type: ignore[misc,assignment]


def run_loop(options: argparse.Namespace) -> None:
    """Runs one loop in this process, with an engine and a trainer that only wait."""
    import train
    import train_async
    from slime.arguments import parse_args
    from slime.ray.driver import main

    with_stated_parts(options.median, options.sigma, options.train_seconds)
    folder = Path(options.folder)
    flags = ["--run-dir", str(folder / options.loop), "--hf-checkpoint", str(folder / "model")]
    flags += ["--prompt-data", str(folder / "prompts.jsonl"), "--num-rollout", str(options.rollouts)]
    flags += ["--rollout-batch-size", str(options.batch), "--custom-rm-path", f"{__file__}:reward"]
    flags += ["--save-interval", "1000000", "--no-use-tensorboard", "--rollout-max-response-len", "16"]
    flags += ["--disable-rewards-normalization"]
    loop = train.train if options.loop == "sync" else train_async.train
    main(loop, lambda: parse_args(flags))


def measure(options: argparse.Namespace, loop: str) -> list[dict[str, float]]:
    """Runs a loop in a separate process; returns its metrics, one row for each rollout."""
    words = [
        f"--{name}={getattr(options, name)}" for name in ("folder", "rollouts", "batch", "median", "sigma")
    ]
    inner = [sys.executable, "-m", "claw_lab.benchmarks.trainer.async_overlap", "--loop", loop, *words]
    inner.append(f"--train-seconds={options.train_seconds}")
    return metrics_of(inner, Path(options.folder) / loop)


def metrics_of(command: list[str], run_dir: Path) -> list[dict[str, float]]:
    """Runs a driver under a supervisor, which also ends its servers; returns its metrics, one row for each
    rollout."""
    supervisor = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run_dir)]
    words = [*supervisor, "--max-restarts", "0", "--", *command]
    subprocess.run(words, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def best_overlap(waits: list[float], works: list[float]) -> float:
    """Returns the seconds of the ideal loop: batch k + 1 is sampled while k trains.

    Args:
        waits: seconds from the request of each batch until it is complete.
        works: seconds of each training step with its weight update.
    """
    hidden = sum(max(work, wait) for work, wait in zip(works[:-1], waits[1:], strict=True))
    return waits[0] + hidden + works[-1]


def report(options: argparse.Namespace) -> dict[str, Any]:
    sync, overlapped = (measure(options, loop) for loop in ("sync", "async"))
    waits = [line["perf/wait_time"] for line in sync]
    works = [line["perf/train_time"] + line["perf/update_weights_time"] for line in sync]
    sync_seconds = sync[-1]["time"] - sync[0]["time"] + waits[0] + works[0]
    async_seconds = overlapped[-1]["time"] - overlapped[0]["time"]
    first = overlapped[0]
    async_seconds += first["perf/wait_time"] + first["perf/train_time"] + first["perf/update_weights_time"]
    ideal = best_overlap(waits, works)
    return {
        "rollouts": options.rollouts,
        "requests": options.rollouts * options.batch,
        "rollout_seconds": {"mean": round(sum(waits) / len(waits), 3), "longest": round(max(waits), 3)},
        "train_seconds": options.train_seconds,
        "sync_seconds": round(sync_seconds, 2),
        "async_seconds": round(async_seconds, 2),
        "ideal_seconds": round(ideal, 2),
        "speedup": round(sync_seconds / async_seconds, 3),
        "share_of_possible_overlap": round((sync_seconds - async_seconds) / (sync_seconds - ideal), 3),
    }


def main_program() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8, help="requests of a rollout")
    parser.add_argument("--median", type=float, default=0.4, help="median latency, seconds")
    parser.add_argument(
        "--sigma", type=float, default=0.8, help="standard deviation of the latency's logarithm"
    )
    parser.add_argument("--train-seconds", type=float, default=1.3)
    parser.add_argument("--loop", choices=["sync", "async"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        run_loop(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="async_overlap_") as folder:
        options.folder = folder
        prompt_model(Path(folder) / "model")
        count = options.rollouts * options.batch
        lines = [json.dumps({"input": f"prompt {number}"}) for number in range(count)]
        (Path(folder) / "prompts.jsonl").write_text("\n".join(lines))
        result = report(options)
    print(json.dumps(result))
    return 0 if result["share_of_possible_overlap"] >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main_program())
