"""Measures how far learning moved a model on prompts that its preference is not about: KL(base || version) per token.

`bash lab/run.sh benchmarks.learning.kl_to_base BASE VERSION` samples the base's answers to held-out prompts of
`./claw progress` at temperature 1, computes the distributions of both model folders at each of their tokens over the
whole vocabulary, and prints one JSON line: the mean in nats per token of each class of prompts. It runs on a CPU. The
embedded engine samples; transformers computes the distributions, in float32.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from claw_lab.benchmarks.learning.folders import answers_of
from openclaw.dreaming.asking import Asked
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.progress.prompts import GROUPS, Item, all_items, chosen


@dataclass(frozen=True)
class Answered:
    """Token ids of a prompt and of an answer to it."""

    prompt: list[int]
    answer: list[int]


def model_of(folder: Path) -> Any:
    """Loads a model folder on the CPU, in float32, for inference."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()


def answered(
    folder: Path, prompts: HintedPrompts, items: Sequence[Item], longest: int, dtype: str
) -> list[Answered]:
    """Samples an answer of at most `longest` tokens to each prompt from the embedded engine, at temperature 1."""
    asked = [Asked(prompts.asked(item.messages, True, longest), longest) for item in items]

    sampled = answers_of(folder, prompts, asked, dtype)
    return [
        Answered(one.prompt_ids, answer.ids)
        for one, answer in zip(asked, sampled, strict=True)
        if answer and answer.ids
    ]


@torch.inference_mode()
def log_probs(model: Any, one: Answered) -> torch.Tensor:
    """Returns the log-probs before each token of the answer, shape [tokens, vocabulary], in float32."""
    logits = model(torch.tensor([one.prompt + one.answer])).logits[0]
    return torch.log_softmax(logits[len(one.prompt) - 1 : -1].float(), -1)


def mean_kl(base: Any, version: Any, answers: Sequence[Answered]) -> float:
    """Returns KL(base || version) in nats, the mean of all tokens of the answers."""
    total, tokens = 0.0, 0
    for one in answers:
        before, after = log_probs(base, one), log_probs(version, one)
        total += float((before.exp() * (before - after)).sum())
        tokens += len(one.answer)
    return total / max(tokens, 1)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the mean KL of each class, with the number of answers and of their tokens."""
    prompts = HintedPrompts.of(options.base)
    items = [item for item in chosen(all_items(), options.most) if item.group in options.groups]
    answers = {
        group: answered(
            options.base,
            prompts,
            [item for item in items if item.group == group],
            options.longest,
            options.dtype,
        )
        for group in options.groups
    }
    base, version = model_of(options.base), model_of(options.version)
    return {
        group: {
            "answers": len(some),
            "tokens": sum(len(one.answer) for one in some),
            "kl": round(mean_kl(base, version, some), 4),
        }
        for group, some in answers.items()
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path, help="model folder before learning")
    parser.add_argument("version", type=Path, help="model folder after learning")
    parser.add_argument(
        "--groups", nargs="+", choices=GROUPS, default=["unrelated"], help="classes of prompts"
    )
    parser.add_argument("--most", type=int, default=60, help="most prompts of each class; 0: all")
    parser.add_argument("--longest", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--dtype", default="bfloat16", help="type of the weights in the engine that samples")
    return parser.parse_args(argv)


if __name__ == "__main__":
    print(json.dumps(measured(parse())))
