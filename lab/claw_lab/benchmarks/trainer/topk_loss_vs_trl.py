"""Compares the top-K reverse KL with tail bin here with TRL's SDFT and SDPO trainers, on identical fp32 logits.

    bash lab/run.sh benchmarks.trainer.topk_loss_vs_trl --trl-python ENV/bin/python

ENV is a separate environment with TRL: `python -m venv ENV && ENV/bin/pip install torch==2.13.0 trl==1.16.0`. Prints
one JSON line for each method and K: largest difference of a token's loss in nats, and of a gradient. Exits with 1 if
one is above 1e-5.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slime.losses import Candidates, DenseDistribution, reverse_kl_topk, topk_targets, weighted_sum

POSITIONS, VOCABULARY, BAR = 200, 4096, 1e-5
OTHER_SIDE = str(Path(__file__).with_name("topk_loss_trl.py"))


def ours(student: torch.Tensor, teacher: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss of each token [T] and its gradient [T, V], over the student's ids."""
    student = student.clone().requires_grad_()
    dist, ids = DenseDistribution(student), DenseDistribution(student.detach()).topk(k)[1]
    present = torch.ones(1, len(student), dtype=torch.bool)
    candidates = Candidates(present, DenseDistribution(teacher).log_probs(ids)[None], None, ids)
    groups = torch.zeros(len(student), dtype=torch.long)
    targets = topk_targets(dist, candidates, k, "student", "shortest", groups)
    losses = [reverse_kl_topk(dist, targets, weighted_sum(row)).loss for row in torch.eye(len(student))]
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), student)
    return torch.stack(losses).detach(), gradient


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trl-python", required=True, help="python of an environment with TRL")
    options = parser.parse_args()
    torch.manual_seed(0)
    # From flat to sharp, as early and late tokens of an answer are.
    scale = torch.linspace(0.2, 6.0, POSITIONS)[:, None]
    student = scale * torch.randn(POSITIONS, VOCABULARY)
    teacher = student + 0.5 * scale * torch.randn(POSITIONS, VOCABULARY)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        save_file({"student": student, "teacher": teacher}, f"{folder}/logits.safetensors")
        for method in ("sdft", "sdpo"):
            for k in (4, 50, 100):
                subprocess.run([options.trl_python, OTHER_SIDE, folder, method, str(k)], check=True)
                theirs = load_file(f"{folder}/{method}.safetensors")
                loss, gradient = ours(student, teacher, k)
                results = {
                    "loss": float((loss - theirs["loss"]).abs().max()),
                    "gradient": float((gradient - theirs["gradient"]).abs().max()),
                }
                worst = max(worst, *results.values())
                print(
                    json.dumps({"method": method, "k": k, **results, "mean_loss": float(loss.mean())}),
                    flush=True,
                )
    sys.exit(worst > BAR)


if __name__ == "__main__":
    main()
