"""Compares the trainer's log-probs with the engine's, for turns of one weight version, at temperatures 0.6 and 1.

`bash lab/run.sh benchmarks.serving.exactness` serves the tiny model from a temporary folder, talks to it, reads the
stored turns, and prints one JSON line for each temperature. Stored ids are compared with those that the client
received.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from claw_base.ports import free_port
from claw_lab import MODEL
from openclaw.store import RolloutStore
from slime.arguments import parse_args
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample
from tiny_claw.problems import held_out_problems


async def talk(url: str, temperature: float, turns: int) -> dict[str, list[int]]:
    """Asks `turns` problems; returns the received token ids by completion id."""
    async with httpx.AsyncClient(base_url=url, timeout=120.0, trust_env=False) as http:

        async def ask(text: str) -> tuple[str, list[int]]:
            body = {
                "messages": [{"role": "user", "content": text}],
                "temperature": temperature,
                "max_tokens": 300,
                "return_token_ids": True,
            }
            answer = (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()
            return answer["id"], answer["choices"][0]["token_ids"]

        return dict(await asyncio.gather(*(ask(problem.text) for problem in held_out_problems(turns))))


def serve_and_talk(folder: Path, temperature: float, turns: int) -> dict[str, list[int]]:
    port = free_port()
    command = [sys.executable, "-m", "openclaw.server", "--model-path", str(MODEL), "--port", str(port)]
    command += ["--backend", "embedded", "--enable-rl-intercept", "--rl-buffer-dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if line.startswith("ready:"):
                break
        return asyncio.run(talk(f"http://127.0.0.1:{port}", temperature, turns))
    finally:
        server.terminate()
        server.wait(30)


def stored_samples(folder: Path, streamed: dict[str, list[int]]) -> tuple[list[Sample], int]:
    """Returns (samples as the trainer would lease them, number of turns whose ids differ from the received ones)."""
    store = RolloutStore(folder)
    samples, different = [], 0
    for completion_id, ids in streamed.items():
        turn = store.turns.get_by_completion(completion_id)
        if turn is None or turn.completion_ids != ids:
            different += 1
            continue
        length = len(ids)
        samples.append(
            Sample(
                index=len(samples),
                group_index=len(samples),
                tokens=turn.prompt_ids + turn.completion_ids,
                response_length=length,
                rollout_log_probs=turn.completion_log_probs,
                loss_mask=[1] * length,
                temperature=float(turn.sampling["temperature"]),
                reward={"score": 1.0},
                version_spans=turn.version_spans,
            )
        )
    return samples, different


def measure(trainer: FSDPTrainer, temperature: float, turns: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        report = serve_and_talk(Path(folder), temperature, turns)
        samples, different = stored_samples(Path(folder), report)
    gaps = [
        abs(ours - theirs)
        for sample, log_probs in zip(samples, trainer.log_probs(samples), strict=True)
        for ours, theirs in zip(log_probs, sample.rollout_log_probs or [], strict=True)
    ]
    return {
        "temperature": temperature,
        "turns": len(samples),
        "tokens": len(gaps),
        "turns_with_other_ids": different,
        "max_abs_difference": max(gaps),
        "mean_abs_difference": sum(gaps) / len(gaps),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as run_dir:
        flags = ["--hf-checkpoint", str(MODEL), "--run-dir", run_dir, "--rollout-batch-size", "4"]
        flags += ["--disable-rollout-global-dataset", "--disable-rewards-normalization"]
        flags += ["--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"]
        trainer = FSDPTrainer(parse_args(flags))
        trainer.load()
        for temperature in (0.6, 1.0):
            print(json.dumps(measure(trainer, temperature, turns=200)), flush=True)
        trainer.close()
