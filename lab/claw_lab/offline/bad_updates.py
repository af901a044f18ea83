"""Makes bad updates on purpose, from the live state of a loop with a gate; measures which are stopped, and their
effect."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from claw_lab.offline.gated import GatedLoop
from claw_lab.offline.measures import ask
from slime.rollout.post_process import post_processed
from slime.training.fsdp.model import gather_weights
from slime.types import Sample
from slime.weights.update import CandidateRejected
from tiny_claw import detectors
from tiny_claw.problems import held_out_problems

Batch = Callable[["Bench", random.Random], list[Sample]]
Spoil = Callable[[Path, random.Random], None]

AUDIT = "audit"
"""The stage that stops a version that answered people until all questions were asked."""


@dataclass(frozen=True)
class Attempt:
    """One bad update. `stage`: the stage that stopped it, "" if none. `fall`: decrease of the greedy accuracy of the live
    version.
        `measured`: the gate's measurements until then."""

    kind: str
    scale: float
    stage: str
    fall: float | None
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Drift:
    """Bad updates in a row. `stopped`: the stage that stopped each update. `live`: decrease of the greedy accuracy
    after each update, of the version that answered people before all questions were asked."""

    kind: str
    stopped: list[str]
    live: list[float]

    @property
    def longest(self) -> int:
        """Returns the longest sequence of updates in which a version that had fallen by two points answered
        people."""
        longest = run = 0
        for fall in self.live:
            run = run + 1 if fall >= HARM else 0
            longest = max(longest, run)
        return longest


HARM = 0.02


class Bench:
    """One trained loop, and bad updates from its live state. `problems`: held-out problems for the accuracy."""

    def __init__(self, loop: GatedLoop, problems: int) -> None:
        self.loop, self.chat = loop, loop.chat
        self.problems = held_out_problems(problems)
        self.accuracy = self.measure()
        self.batch = loop.last

    def measure(self) -> float:
        """Returns the greedy accuracy of the engine's weights."""
        return ask(self.chat, self.problems, 0, 0.0).share(detectors.is_right)

    def answers(self, samples: list[Sample], texts: list[str], reward: float) -> list[Sample]:
        """Returns samples with the same prompts, other answers, and one reward for all."""
        encode = self.chat.format.tokenizer.encode
        changed = []
        for sample, text in zip(samples, texts, strict=True):
            prompt, end = sample.tokens[: sample.prompt_length], sample.tokens[-1]
            answer = [*encode(text), end]
            changed.append(self.answered(sample, prompt + answer, len(answer), reward))
        return changed

    def answered(self, sample: Sample, tokens: list[int], length: int, reward: float) -> Sample:
        fresh = replace(
            sample, tokens=tokens, response_length=length, reward={"score": reward}, loss_mask=None,
            rollout_log_probs=None, version_spans=[], teacher_tokens_candidates=[], metadata={},
        )  # fmt: skip
        [log_probs] = self.loop.local.log_probs([fresh])
        return replace(fresh, rollout_log_probs=log_probs)

    def train(self, kind: str, rng: random.Random) -> None:
        trainer = self.loop.trainer
        assert trainer is not None
        samples = TRAINED[kind](self, rng)
        trainer.train(self.loop.rollouts, post_processed(self.loop.args, samples, None, None))

    def attempt(self, kind: str, scale: float, rng: random.Random) -> Attempt:
        """Makes one bad update at `scale` times the learning rate; then restores the loop."""
        loop, start, history = self.loop, self.loop.state(), copy.deepcopy(vars(self.loop.gate.history))
        if kind in TRAINED:
            loop.local.scale_learning_rate(scale)
            self.train(kind, rng)
        try:
            measurements = loop.examine(lambda folder: SPOILT[kind](folder, rng) if kind in SPOILT else None)
            weights = gather_weights(loop.trainer.model, None, keep=True)  # type: ignore[union-attr]
            self.chat.engine.install(weights, loop.version)
            fall = round(self.accuracy - self.measure(), 4)
            stopped = loop.go_live(measurements) is not None
            return Attempt(kind, scale, AUDIT if stopped else "", fall, rounded(measurements))
        except CandidateRejected as rejection:
            return Attempt(kind, scale, rejection.stage, None, rounded(rejection.measurements))
        finally:
            vars(loop.gate.history).update(history)
            loop.return_to(start)
            loop.local.scale_learning_rate(1.0)

    def drift(self, kind: str, count: int, rng: random.Random) -> Drift:
        """Makes bad updates in a row at the usual rate, as a person who continues would cause. Restores the loop
        afterwards."""
        loop, start, history = self.loop, self.loop.state(), copy.deepcopy(vars(self.loop.gate.history))
        stopped: list[str] = []
        live = [0.0]
        for _ in range(count):
            self.train(kind, rng)
            try:
                measurements = loop.examine()
            except CandidateRejected as rejection:
                stopped.append(rejection.stage)
                loop.undo(rejection)
                live.append(
                    round(self.accuracy - self.measure(), 4) if stopped[-2:-1] == [AUDIT] else live[-1]
                )
            else:
                weights = gather_weights(loop.trainer.model, None, keep=True)  # type: ignore[union-attr]
                self.chat.engine.install(weights, loop.version)
                live.append(round(self.accuracy - self.measure(), 4))
                stopped.append(AUDIT if loop.go_live(measurements) is not None else "")
        vars(loop.gate.history).update(history)
        loop.return_to(start)
        return Drift(kind, stopped, live[1:])


def rounded(measurements: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in measurements.items()}


def sign_turned(bench: Bench, rng: random.Random) -> list[Sample]:
    return [replace(one, reward={"score": -float(one.get_reward_value("score"))}) for one in bench.batch]


def faster(bench: Bench, rng: random.Random) -> list[Sample]:
    """Trains the good batch at ten times the learning rate."""
    bench.loop.local.scale_learning_rate(10 * bench.loop.local.trainer.rate_scale)
    return bench.batch


def garbage(bench: Bench, rng: random.Random) -> list[Sample]:
    tensors = []
    for one in bench.batch:
        ids = [rng.randrange(4, bench.loop.local.trainer.vocabulary) for _ in range(30)]
        prompt = one.tokens[: one.prompt_length]
        tensors.append(bench.answered(one, prompt + ids, len(ids), 1.0))
    return tensors


def one_answer(bench: Bench, rng: random.Random) -> list[Sample]:
    return bench.answers(bench.batch, ["I do not know."] * len(bench.batch), 1.0)


def wrong_answers(bench: Bench, rng: random.Random) -> list[Sample]:
    texts = [
        f"First, {a} + {b} = {a + b + rng.randint(1, 9)}. So there are {rng.randint(1, 99)} now."
        for a, b in ((rng.randint(2, 60), rng.randint(2, 30)) for _ in bench.batch)
    ]
    return bench.answers(bench.batch, texts, 1.0)


def other_language(bench: Bench, rng: random.Random) -> list[Sample]:
    texts = [
        "Всего получилось семь яблок.",
        "一共有七个苹果。",
        "Antwort: es sind sieben Stück.",
        "Сейчас их девять.",
    ]
    return bench.answers(bench.batch, [rng.choice(texts) for _ in bench.batch], 1.0)


TRAINED: dict[str, Batch] = {
    "sign of the reward turned": sign_turned,
    "10 x learning rate": faster,
    "garbage": garbage,
    "one repeated answer": one_answer,
    "praised wrong answers": wrong_answers,
    "another language": other_language,
}


def change_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Spoil:
    def spoil(folder: Path, rng: random.Random) -> None:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        name = rng.choice(sorted(tensors))
        save_file({**tensors, name: change(tensors[name])}, file)

    return spoil


def cut(folder: Path, rng: random.Random) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * rng.random())])


SPOILT: dict[str, Spoil] = {
    "NaN": change_tensor(lambda tensor: tensor.index_fill(0, torch.tensor([0]), float("nan"))),
    "exploded": change_tensor(lambda tensor: tensor * 1000),
    "wrong shape": change_tensor(lambda tensor: tensor[:-1].contiguous()),
    "truncated file": cut,
}

KINDS = (*SPOILT, *TRAINED)
