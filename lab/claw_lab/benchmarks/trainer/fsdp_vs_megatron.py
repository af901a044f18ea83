"""Compares FSDP and Megatron on the same batches: the first gradient of each weight, and twenty float64 steps of RL.

    bash lab/run.sh benchmarks.trainer.fsdp_vs_megatron --model openclaw-test/tiny_claw/model

Prints the largest relative difference of a weight's gradient in fp32, and the largest difference of the losses,
gradient norms and KL terms of the steps in float64. Samples consist of random ids; it needs megatron-core, and no
GPU.
"""

from __future__ import annotations

import argparse
import json
import random
from functools import partial
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from slime.arguments import Arguments
from slime.training.fsdp import FSDPTrainer
from slime.training.fsdp import loading as fsdp
from slime.training.megatron import MegatronTrainer
from slime.training.megatron import loading as megatron
from slime.types import Sample

TRAINERS = {"fsdp": FSDPTrainer, "megatron": MegatronTrainer}
STEPS = 20


def samples(vocabulary: int, seed: int, count: int = 8) -> list[Sample]:
    """Returns groups of two answers to one prompt, with rewards of 1 or -1. Id 0 is avoided: it is often the padding
    token, whose input embedding gets a gradient in megatron-core but not in transformers."""
    chance = random.Random(seed)
    drawn = []
    for index in range(count):
        if index % 2 == 0:
            prompt = [chance.randrange(1, vocabulary) for _ in range(chance.randint(20, 60))]
        response = [chance.randrange(1, vocabulary) for _ in range(chance.randint(10, 60))]
        drawn.append(
            Sample(
                index=index,
                group_index=index // 2,
                tokens=prompt + response,
                response_length=len(response),
                reward=chance.choice((1.0, -1.0)),
            )
        )
    return drawn


def arguments(model: str, backend: str, **changes: Any) -> Arguments:
    return Arguments(
        hf_checkpoint=model,
        ref_load=model,
        save="unused",
        train_backend=backend,  # type: ignore[arg-type]
        disable_rewards_normalization=True,
        use_kl_loss=True,
        kl_loss_coef=0.05,
        global_batch_size=8,
        **changes,
    )


def first_gradient(model: str, backend: str) -> dict[str, torch.Tensor]:
    """Returns the gradients of one step without clipping, by Hugging Face's names."""
    trainer = TRAINERS[backend](arguments(model, backend, clip_grad=0.0))
    gradients: dict[str, torch.Tensor] = {}

    def keep() -> None:
        if isinstance(trainer, MegatronTrainer):
            for each in trainer.learner.gradients.all:
                entry = trainer.learner.model.weights.entries[each.name]
                parts = trainer.learner.model.weights.separate(entry, [each.gradient.clone()])
                gradients.update(zip(entry.sources, parts, strict=True))
            return
        for name, parameter in trainer.learner.model.named_parameters():
            gradient = parameter.grad
            gradients[name] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

    trainer.learner.move = keep  # type: ignore[method-assign]
    trainer.train(0, samples(trainer.vocabulary, 0))
    return gradients


def curve(model: str, backend: str) -> list[dict[str, float]]:
    trainer = TRAINERS[backend](arguments(model, backend, lr=5e-4))
    return [trainer.train(step, samples(trainer.vocabulary, step)) for step in range(STEPS)]


def use_float64() -> None:
    load = fsdp._load

    def wide(folder: str, args: Any) -> Any:
        shards, model = load(folder, args)
        return shards, model.double()

    fsdp._load = wide
    fsdp.MixedPrecisionPolicy = partial(_native, MixedPrecisionPolicy())  # type: ignore[misc,assignment]
    megatron.computing_dtype = lambda *_: torch.float64


def _native(policy: MixedPrecisionPolicy, **_: Any) -> MixedPrecisionPolicy:
    return policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    model = parser.parse_args().model
    torch.set_num_threads(1)
    theirs, ours = (first_gradient(model, backend) for backend in TRAINERS)
    assert theirs.keys() == ours.keys()
    differences = {name: float((ours[name] - x).norm() / x.norm()) for name, x in theirs.items()}
    worst = max(differences, key=lambda name: differences[name])
    use_float64()
    curves = [curve(model, backend) for backend in TRAINERS]
    result: dict[str, Any] = {
        "weights": len(differences),
        "gradient": differences[worst],
        "gradient_of": worst,
    }
    for key in ("loss", "grad_norm", "kl_loss"):
        pairs = zip(*curves, strict=True)
        result[key] = max(abs(one[key] - other[key]) for one, other in pairs)
        result[f"{key}_from_to"] = [curves[0][0][key], curves[0][-1][key]]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
