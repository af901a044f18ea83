"""Checks the steps between a trained version and its engine: the log-prob probe, and CUDA IPC."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from statistics import median
from typing import Any

import torch

from claw_lab import environment
from claw_lab.long.gpu_check.bench import Bench, Wrong
from claw_lab.long.gpu_check.packages import ROOT
from slime.ray.actor_process import VARIABLES
from slime.types import Sample
from slime.weights.probe import TEXT_TOLERANCES, probe_ids

MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"
"""The only trained model of the repository: random weights give less confident predictions than real ones."""
DRAWS = 32
IPC_TIMEOUT = 60.0  # seconds


def probe(bench: Bench) -> None:
    """Measures the mean difference of log-probs between the trainer on the device and transformers on the CPU, both
    in bf16: of the probe's text, and of random ids. Raises Wrong if that of the text is above the limit of the probe.
    """
    from transformers import AutoModelForCausalLM

    folder = str(MODEL)
    made = bench.trainer(bench.arguments(bench.small, hf_checkpoint=folder, ref_load=folder))
    others = {
        dtype: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=False).eval()
        for dtype in (torch.bfloat16, torch.float32)
    }

    def gaps(ids: list[int], dtype: torch.dtype) -> list[float]:
        [log_probs] = made.log_probs([Sample(tokens=ids, response_length=len(ids) - 1, temperature=1.0)])
        with torch.no_grad():
            table = others[dtype](torch.tensor([ids])).logits[0].float().log_softmax(-1)
        return [
            abs(x - float(table[place, token]))
            for place, (x, token) in enumerate(zip(log_probs, ids[1:], strict=True))
        ]

    ids, of_text = probe_ids(folder, made.vocabulary)
    text, exact = gaps(ids, torch.bfloat16), gaps(ids, torch.float32)
    rng = random.Random(0)
    draws = [[rng.randrange(made.vocabulary) for _ in range(24)] for _ in range(DRAWS)]
    means = [_mean(gaps(draw, torch.bfloat16)) for draw in draws]
    made.close()
    bench.report(
        "probe", of_text=of_text, text=_mean(text), text_median=median(text), text_to_fp32=_mean(exact),
        draws=_mean(means), largest_draw=max(means), allowed=TEXT_TOLERANCES["bfloat16"],
    )  # fmt: skip
    if not _mean(text) <= TEXT_TOLERANCES["bfloat16"]:
        raise Wrong(f"the probe's text differs by {_mean(text):.3f}: a correct engine would be refused")


def ipc(bench: Bench) -> None:
    """Shares a bucket of weights as the trainer does, and opens it in another process as SGLang does, on one GPU.
    Both are separate processes, since memory of a trainer's allocator cannot be shared. Raises Wrong if the content
    has changed."""
    kept = {name: value for name, value in environment().items() if name not in VARIABLES}
    command = [sys.executable, "-m", "claw_lab.long.gpu_check.ipc", *(["--cpu"] if bench.tiny else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=IPC_TIMEOUT, env=kept)
    if done.returncode != 0:
        raise Wrong(f"no bucket could be shared: {done.stderr.strip().splitlines()[-1:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bench.report("ipc", **measured)
    if not measured["equal"] or measured["child_exit"] != 0:
        raise Wrong("the bucket arrived changed, or its opener failed")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
