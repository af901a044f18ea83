"""Measures a tiny-claw folder: `bash lab/run.sh tiny_models.tiny_claw.evaluate MODEL_DIR` prints one JSON line.

It reports the accuracy on held-out problems, the style of unprompted replies, and whether instructions and complaints
are followed, in trained and other wordings. Other replies are sampled at temperature 1.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from claw_lab.tiny_models.tiny_claw.generation import Helper, Messages
from tiny_claw import detectors, wordings
from tiny_claw.detectors import Manner, Tone, Verdict
from tiny_claw.dialogues import HINT_BLOCK, MANNERS
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import Problem, held_out_problems
from tiny_claw.wordings import Split

SPLITS: tuple[Split, ...] = ("train", "test")
SEED = 2026


def question(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def hinted(place: str, text: str, hint: str) -> Messages:
    """Returns the problem with an instruction, in the system message or in a hint block."""
    if place == "system":
        return [{"role": "system", "content": hint}, *question(text)]
    return question(f"{text} {hint}" if place == "prompt" else text + HINT_BLOCK + hint)


def complained(rng: random.Random, problem: Problem, first: Style, complaint: str) -> Messages:
    """Returns a reply in the style `first` and a complaint about it."""
    reply = detectors.visible(write_reply(rng, problem, first))
    return [*question(problem.text), {"role": "assistant", "content": reply}, *question(complaint)]


def verdicts(
    helper: Helper,
    problems: Sequence[Problem],
    talks: list[Messages],
    temperature: float = 1.0,
    thinking: bool = True,
) -> list[Verdict]:
    replies = helper.answer(talks, temperature, thinking=thinking)
    return [detectors.judge(problem, reply) for problem, reply in zip(problems, replies, strict=True)]


def share(hits: Sequence[bool]) -> float:
    return round(sum(hits) / len(hits), 4)


def accuracy(helper: Helper, problems: Sequence[Problem], temperature: float) -> float:
    """Returns the share of right final numbers without a request about style."""
    talks = [question(problem.text) for problem in problems]
    return share([verdict.right for verdict in verdicts(helper, problems, talks, temperature)])


def unprompted(helper: Helper, problems: Sequence[Problem]) -> dict[str, object]:
    """Returns accuracy, styles, warmth and preference at the serving temperature."""
    results = verdicts(helper, problems, [question(problem.text) for problem in problems])
    manners = Counter(verdict.manner for verdict in results)
    return {
        "accuracy": share([verdict.right for verdict in results]),
        "manners": {manner: round(count / len(results), 4) for manner, count in sorted(manners.items())},
        "preference": share([verdict.satisfies for verdict in results]),
        "warm": share([verdict.tone == "warm" for verdict in results]),
    }


def followed_hints(helper: Helper, problems: Sequence[Problem]) -> dict[str, object]:
    """Returns for each split, place and style the share that follows, and the share of right results."""
    rng = random.Random(SEED)
    report: dict[str, object] = {}
    for split in SPLITS:
        for place in ("prompt", "system", "block"):
            for manner in MANNERS:
                talks = [
                    hinted(place, problem.text, wordings.manner_hint(rng, manner, split))
                    for problem in problems
                ]
                report[f"{split}.{place}.{manner}"] = _followed(verdicts(helper, problems, talks), manner)
    return report


def rewritten(helper: Helper, problems: Sequence[Problem]) -> dict[str, object]:
    """Returns shares of corrected replies, after complaints about form, about missing steps (both ask for prose) and
    about a wrong result."""
    rng = random.Random(SEED)
    report: dict[str, object] = {}
    for split in SPLITS:
        form = [
            complained(rng, problem, Style("list"), wordings.manner_complaint(rng, "prose", split))
            for problem in problems
        ]
        steps = [
            complained(rng, problem, Style("bare"), rng.choice(wordings.LOST_STEPS_COMPLAINTS[split]))
            for problem in problems
        ]
        report[f"{split}.form"] = _followed(verdicts(helper, problems, form), "prose")
        report[f"{split}.steps"] = _followed(verdicts(helper, problems, steps), "prose")
    return report


def tones(helper: Helper, problems: Sequence[Problem]) -> dict[str, float]:
    """Returns the share of replies in the tone of a hint with unseen wording."""
    rng = random.Random(SEED)
    tones_asked: tuple[Tone, ...] = ("warm", "cold")
    report: dict[str, float] = {}
    for tone in tones_asked:
        talks = [
            hinted("block", problem.text, wordings.trait_hint(rng, tone, "test")) for problem in problems
        ]
        report[tone] = share([verdict.tone == tone for verdict in verdicts(helper, problems, talks)])
    return report


def lengths(helper: Helper, problems: Sequence[Problem]) -> dict[str, float]:
    """Returns the share of replies in prose with one sentence for each step and for the result, by the request of a
    hint with unseen wording. None: no request except prose."""
    rng = random.Random(SEED)
    report: dict[str, float] = {}
    for length in ("none", "short", "detailed"):
        talks = []
        for problem in problems:
            hints = [wordings.manner_hint(rng, "prose", "test")]
            if length == "short" or length == "detailed":
                hints.append(wordings.trait_hint(rng, length, "test"))
            talks.append(hinted("block", problem.text, " ".join(hints)))
        texts = helper.answer(talks)
        report[length] = share(
            [detectors.is_detailed(p, text) for p, text in zip(problems, texts, strict=True)]
        )
    return report


def evaluate(folder: str, n: int = 1000, n_small: int = 200) -> dict[str, object]:
    """Returns the whole report; `n` problems for accuracy, `n_small` for each cell of the instruction tables."""
    torch.manual_seed(SEED)
    started = time.monotonic()
    helper = Helper(folder)
    problems, few = held_out_problems(n), held_out_problems(n_small, seed=1)
    questions = [question(problem.text) for problem in few]
    return {
        "accuracy_greedy": accuracy(helper, problems, 0.0),
        "accuracy_greedy_held_out_facts": accuracy(
            helper, held_out_problems(n_small, 2, only_held_out_facts=True), 0.0
        ),
        "unprompted": unprompted(helper, problems),
        "thinking_off_accuracy": share([v.right for v in verdicts(helper, few, questions, thinking=False)]),
        "hints": followed_hints(helper, few),
        "tones": tones(helper, few),
        "detailed": lengths(helper, few),
        "rewrites": rewritten(helper, few),
        "seconds": round(time.monotonic() - started, 1),
    }


def _followed(verdicts: Sequence[Verdict], manner: Manner) -> dict[str, float]:
    return {
        "followed": share([verdict.manner == manner for verdict in verdicts]),
        "right": share([verdict.right for verdict in verdicts]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("--n", type=int, default=1000, help="problems for accuracy")
    parser.add_argument(
        "--n-small", type=int, default=200, help="problems for each cell of the instruction tables"
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not (Path(args.model) / "config.json").is_file():
        parser.error(f"{args.model} is not a model folder: it has no config.json")
    torch.set_num_threads(args.threads)
    print(json.dumps(evaluate(args.model, args.n, args.n_small)))


if __name__ == "__main__":
    main()
