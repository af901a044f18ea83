"""The part of `update_vs_trl.py` that trains with this repository."""

from __future__ import annotations

import json
import sys
import time

import torch
from safetensors.torch import save_file

from claw_lab.benchmarks.trainer.memory import PeakMemory
from slime.arguments import Arguments
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample


def main() -> None:
    settings = json.loads(sys.argv[1])
    args = Arguments(
        hf_checkpoint=settings["model"],
        save=settings["folder"],
        lr=1e-5,
        adam_beta2=0.999,
        train_threads=settings["threads"],
        max_tokens_per_gpu=8192,
    )
    trainer = FSDPTrainer(args)
    samples = [
        Sample(
            index=i,
            group_index=0,
            tokens=sample["prompt"] + sample["response"],
            response_length=len(sample["response"]),
            reward=sample["reward"],
        )
        for i, sample in enumerate(settings["samples"])
    ]

    def keep_gradients(optimizer: torch.optim.Optimizer, *_: object) -> None:
        handle.remove()
        parameters = trainer.model.named_parameters()
        gradients = {name: p.grad.full_tensor().clone() for name, p in parameters if p.grad is not None}
        save_file(gradients, settings["folder"] + "/ours.safetensors")

    handle = trainer.learner.optimizer.register_step_pre_hook(keep_gradients)
    memory = PeakMemory()
    done = 0
    for line in sys.stdin:
        seconds = []
        for _ in range(json.loads(line)["updates"]):
            started, worked = time.perf_counter(), time.process_time()
            trainer.train(done, samples)
            seconds.append((time.perf_counter() - started, time.process_time() - worked))
            done += 1
        print(json.dumps({"update": seconds, "peak_mb": memory.rise_mb()}), flush=True)


if __name__ == "__main__":
    main()
