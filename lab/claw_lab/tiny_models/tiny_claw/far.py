"""Measures the accuracy of a tiny-claw folder at far positions: `bash lab/run.sh tiny_models.tiny_claw.far MODEL_DIR`
prints one JSON line.

The positions jump between a short system message and the question, as if a long text were there. It measures only the
effect of positions; for the effect of long texts see the README.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import torch

from claw_lab.tiny_models.tiny_claw.generation import Helper, Messages
from tiny_claw import detectors
from tiny_claw.problems import Problem, held_out_problems

SYSTEM = "You are a helpful assistant. Answer the homework of the children who come to you, and be kind."
GAPS = (0, 16_000, 32_000, 48_000, 64_000)  # positions
LONGEST = 128  # tokens


@torch.no_grad()
def answer(helper: Helper, problem: Problem, gap: int) -> str:
    """Returns the greedy reply to a problem whose question starts `gap` positions later."""
    system: Messages = [{"role": "system", "content": SYSTEM}]
    template = helper.tokenizer.apply_chat_template
    before = helper.tokenizer.encode(template(system, tokenize=False), add_special_tokens=False)
    talk = template(
        [*system, {"role": "user", "content": problem.text}], tokenize=False, add_generation_prompt=True
    )
    ids: list[int] = helper.tokenizer.encode(talk, add_special_tokens=False)
    positions = [*range(len(before)), *range(len(before) + gap, len(ids) + gap)]
    end, reply, known = helper.tokenizer.convert_tokens_to_ids("<|im_end|>"), [], None
    fresh, count = ids, len(ids)
    while len(reply) < LONGEST:
        # Without a mask, positions with gaps would mean packed documents
        mask = torch.ones(1, count, dtype=torch.long)
        out = helper.model(
            input_ids=torch.tensor([fresh]), position_ids=torch.tensor([positions]), attention_mask=mask,
            past_key_values=known, use_cache=True,
        )  # fmt: skip
        token, known = int(out.logits[0, -1].argmax()), out.past_key_values
        if token == end:
            break
        reply.append(token)
        fresh, positions, count = [token], [positions[-1] + 1], count + 1
    return str(helper.tokenizer.decode(reply, skip_special_tokens=True))


def accuracy(helper: Helper, problems: Sequence[Problem], gap: int) -> float:
    """Returns the share of right final numbers."""
    right = [detectors.is_right(problem, answer(helper, problem, gap)) for problem in problems]
    return sum(right) / len(right)


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy at far positions.")
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("--problems", type=int, default=100)
    args = parser.parse_args()
    helper, problems = Helper(args.model), held_out_problems(args.problems, seed=1)
    print(json.dumps({str(gap): accuracy(helper, problems, gap) for gap in GAPS}))


if __name__ == "__main__":
    main()
