"""The part of `topk_loss_vs_trl.py` that runs TRL's formula; it reads logits from FOLDER and writes losses and
gradients there."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def main() -> None:
    folder, method, k = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if method == "sdpo":
        from trl.experimental.sdpo.loss_utils import compute_topk_self_distillation_loss
    else:
        from trl.experimental.sdft.loss_utils import compute_topk_self_distillation_loss
    tensors = load_file(folder / "logits.safetensors")
    student = tensors["student"].requires_grad_()
    loss = compute_topk_self_distillation_loss(
        student, tensors["teacher"], distillation_topk=k, distillation_alpha=1.0, distillation_add_tail=True
    )
    (gradient,) = torch.autograd.grad(loss.sum(), student)
    save_file({"loss": loss.detach(), "gradient": gradient}, folder / f"{method}.safetensors")


if __name__ == "__main__":
    main()
