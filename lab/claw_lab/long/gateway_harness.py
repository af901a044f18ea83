"""Runs a whole training whose agent is smolagents behind the gateway: `bash lab/claw_lab/long/gateway_harness.sh`.

Prints one JSON line: stored turns, trained ones, the versions that went live; exit status 1 if a check fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from claw_base.ports import free_port
from claw_lab import MODEL, ROOT
from openclaw.store import RolloutStore
from slime import replay
from slime.types import Sample

ROLLOUTS, GROUPS, SAMPLES = 3, 2, 2


def command(folder: Path, port: int) -> list[str]:
    run = folder / "run"
    driver = [sys.executable, str(ROOT / "slime" / "train_async.py")]
    flags = ["--hf-checkpoint", str(MODEL), "--train-backend", "fsdp", "--backend", "embedded"]
    flags += ["--run-dir", str(run), "--save", str(run / "checkpoints"), "--save-interval", "1"]
    flags += ["--service-path", "openclaw.trainer_hooks.services.start", "--port", str(port)]
    flags += ["--method-path", "openclaw_rl.binary_rl:sample_from_judged_turn", "--judge-backend", "rules"]
    flags += ["--rl-buffer-dir", str(run / "buffer"), "--served-model-name", "policy"]
    flags += [
        "--custom-generate-function-path",
        "claw_lab.long.smol_harness.generate",
    ]
    flags += ["--prompt-data", str(folder / "tasks.jsonl"), "--input-key", "prompt", "--label-key", "label"]
    flags += ["--reward-key", "score", "--advantage-estimator", "grpo", "--disable-grpo-std-normalization"]
    flags += ["--num-rollout", str(ROLLOUTS), "--rollout-batch-size", str(GROUPS)]
    flags += ["--n-samples-per-prompt", str(SAMPLES), "--num-steps-per-rollout", "1", "--lr", "1e-4"]
    flags += ["--rollout-max-response-len", "96", "--rollout-max-context-len", "16000"]
    flags += ["--save-debug-rollout-data", str(run / "trajectories" / "{rollout_id}.json.gz")]
    return [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run), "--", *driver, *flags]


def trained(run: Path) -> list[Sample]:
    """Returns the samples that were leased for training."""
    files = sorted((run / "trajectories").glob("*.json.gz"))
    return [sample for path in files for sample in replay.load(str(path), 0)]


def looked_at(run: Path) -> tuple[dict[str, Any], list[str]]:
    """Returns numbers of a finished run, and its errors."""
    samples = trained(run)
    store = RolloutStore(run / "buffer")
    sessions = sorted({sample.metadata["session"] for sample in samples})
    by_session, _ = store.turns.of_sessions(sessions, 10_000)
    stored = [turn for turns in by_session.values() for turn in turns]
    ids = {tuple(turn.prompt_ids + turn.completion_ids) for turn in stored}
    exact = sum(tuple(sample.tokens) in ids for sample in samples)
    counts = store.status.counts()
    store.close()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    numbers = {
        "rollouts_trained": len(metrics),
        "sessions": len(sessions),
        "turns": len(stored),
        "sources": sorted({str(turn.source) for turn in stored}),
        "samples_trained": len(samples),
        "samples_whose_ids_are_the_stores": exact,
        "versions_sampled": sorted({version for sample in samples for version in sample.versions}),
        "rewards": sorted({round(sample.reward["score"], 2) for sample in samples}),
        "samples_of_the_stores_own_methods": counts["samples"],
    }
    wrong = []
    if len(set(numbers["rewards"])) < 2:
        wrong.append("all sessions have one reward")
    if len(metrics) != ROLLOUTS:
        wrong.append(f"{len(metrics)} of {ROLLOUTS} rollouts were trained")
    if numbers["sources"] != ["environment"]:
        wrong.append(f"turns are from {numbers['sources']}")
    if exact != len(samples) or not samples:
        wrong.append(f"{exact} of {len(samples)} samples have the ids of stored turns")
    if len(numbers["versions_sampled"]) < 2:
        wrong.append("no version that was trained went live before the end")
    if sum(counts["samples"].values()):
        wrong.append("a judge made samples of an environment's turns")
    return numbers, wrong


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        rows = [
            {"prompt": f"Find my number from 1 to {9 + n}. Use the tool.", "label": "4"} for n in range(8)
        ]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        env["HARNESS_GATEWAY"] = f"http://127.0.0.1:{port}"
        done = subprocess.run(command(folder, port), env=env, cwd=ROOT, check=False)
        if done.returncode:
            print(json.dumps({"problems": [f"the run ended with {done.returncode}"]}))
            return 1
        numbers, wrong = looked_at(folder / "run")
    print(json.dumps({**numbers, "problems": wrong, "seconds": round(time.monotonic() - began)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
