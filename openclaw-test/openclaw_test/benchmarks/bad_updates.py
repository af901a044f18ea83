"""Which bad updates the gate stops, and where; how many good ones it rejects; what it costs.

`python openclaw-test/openclaw_test/benchmarks/bad_updates.py --sessions 24 --each 10 --seeds 0` lets a student talk with
the gated loop of one process (every update of theirs is a good one), then spoils updates in ten ways from the live
state, each at 1, 3 and 10 times the learning rate in turn where it is trained at all. Prints one JSON line. An update
that passes is measured: greedy accuracy on held-out problems, beside that of the live weights."""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from safetensors.torch import load_file, save_file

from openclaw_test.offline.gated import FLAGS, GatedLoop
from openclaw_test.offline.local_loop import ChatModel
from openclaw_test.offline.measures import ask
from openclaw_test.offline.methods import METHODS, Setting
from openclaw_test.offline.trial import Plan, Trial
from openclaw_test.people.tastes import STUDENT
from slime.gate.memory import KeptState
from slime.rollout.post_process import post_processed
from slime.training.fsdp.model import gather_weights
from slime.types import Sample
from slime.weights.update import CandidateRejected
from tiny_claw import detectors
from tiny_claw.problems import held_out_problems

MODEL = Path(__file__).resolve().parents[2] / "tiny_claw" / "model"
SCALES = (1.0, 3.0, 10.0)
HARM = 0.02
Batch = Callable[["Bench", random.Random], list[Sample]]


class GatedTrial(Trial):
    """A student who talks with the gated loop."""

    def __init__(self, chat: ChatModel, setting: Setting, plan: Plan, seed: int) -> None:
        super().__init__(chat, setting, plan, seed)
        self.loop.close()
        self.loop = GatedLoop(chat, setting, seed)


class Bench:
    """One trained loop from whose live state updates are spoilt."""

    def __init__(self, loop: GatedLoop, problems: int) -> None:
        self.loop, self.chat = loop, loop.chat
        self.problems = held_out_problems(problems)
        self.live_weights = {name: tensor.clone() for name, tensor in self.chat.engine.tensors().items()}
        self.accuracy = self.measure()

    def measure(self) -> float:
        """Greedy accuracy of what the engine holds."""
        return ask(self.chat, self.problems, 0, 0.0).share(detectors.is_right)

    def answers(self, samples: list[Sample], texts: list[str], reward: float) -> list[Sample]:
        """The same prompts with other answers, all with one reward."""
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

    def attempt(self, kind: str, scale: float, rng: random.Random) -> tuple[str, float | None]:
        """One bad update: the stage that stopped it, or "" and the accuracy that it would have served."""
        loop = self.loop
        if kind in TRAINED:
            loop.local.scale_learning_rate(scale)
            samples = TRAINED[kind](self, rng)
            loop.trainer.train(loop.rollouts, post_processed(loop.args, samples, None, None))  # type: ignore[union-attr]
        try:
            loop.examine(lambda folder: SPOILT[kind](folder, rng) if kind in SPOILT else None)
        except CandidateRejected as rejection:
            return rejection.stage, None
        else:
            weights = gather_weights(loop.trainer.model, None, keep=True)  # type: ignore[union-attr]
            self.chat.engine.install(weights, loop.version)
            accuracy = self.measure()
            self.chat.engine.install(self.live_weights, loop.live.version)
            return "", accuracy
        finally:
            loop.local.go_back()
            loop.local.scale_learning_rate(1.0)

    def stream(self, kind: str, count: int, rng: random.Random) -> dict[str, Any]:
        """Bad updates at the usual rate, one on the other as long as they pass: what a person who goes on gets."""
        loop, gate = self.loop, self.loop.gate
        start, kept = KeptState(loop.trainer), (copy.deepcopy(gate.history), gate.known, gate.said, loop.live)  # type: ignore[arg-type]
        stopped: Counter[str] = Counter()
        for _ in range(count):
            samples = TRAINED[kind](self, rng)
            loop.trainer.train(loop.rollouts, post_processed(loop.args, samples, None, None))  # type: ignore[union-attr]
            try:
                found = loop.examine()
            except CandidateRejected as rejection:
                stopped[rejection.stage] += 1
                loop.undo(rejection)
            else:
                weights = gather_weights(loop.trainer.model, None, keep=True)  # type: ignore[union-attr]
                self.chat.engine.install(weights, loop.version)
                loop.live = loop.candidate.weights
                gate.accept(loop.local, found)
        accuracy = self.measure()
        self.chat.engine.install(self.live_weights, kept[3].version)
        start.restore(loop.trainer)  # type: ignore[arg-type]
        gate.history, gate.known, gate.said, loop.live = kept
        loop.local.keep_state()
        loop.local.scale_learning_rate(1.0)
        return {"stopped": dict(stopped), "of": count, "fall": round(self.accuracy - accuracy, 4)}


def sign_turned(bench: Bench, rng: random.Random) -> list[Sample]:
    return [replace(one, reward={"score": -float(one.get_reward_value("score"))}) for one in bench.loop.last]


def faster(bench: Bench, rng: random.Random) -> list[Sample]:
    """The good batch; the rate is ten times `scale`."""
    bench.loop.local.scale_learning_rate(10 * bench.loop.local.trainer.rate_scale)
    return bench.loop.last


def garbage(bench: Bench, rng: random.Random) -> list[Sample]:
    found = []
    for one in bench.loop.last:
        ids = [rng.randrange(4, bench.loop.local.trainer.vocabulary) for _ in range(30)]
        prompt = one.tokens[: one.prompt_length]
        found.append(bench.answered(one, prompt + ids, len(ids), 1.0))
    return found


def one_answer(bench: Bench, rng: random.Random) -> list[Sample]:
    return bench.answers(bench.loop.last, ["I do not know."] * len(bench.loop.last), 1.0)


def wrong_answers(bench: Bench, rng: random.Random) -> list[Sample]:
    texts = [
        f"First, {a} + {b} = {a + b + rng.randint(1, 9)}. So there are {rng.randint(1, 99)} now."
        for a, b in ((rng.randint(2, 60), rng.randint(2, 30)) for _ in bench.loop.last)
    ]
    return bench.answers(bench.loop.last, texts, 1.0)


def other_language(bench: Bench, rng: random.Random) -> list[Sample]:
    texts = [
        "Всего получилось семь яблок.",
        "一共有七个苹果。",
        "Antwort: es sind sieben Stück.",
        "Сейчас их девять.",
    ]
    return bench.answers(bench.loop.last, [rng.choice(texts) for _ in bench.loop.last], 1.0)


TRAINED: dict[str, Batch] = {
    "sign of the reward turned": sign_turned,
    "10 x learning rate": faster,
    "garbage": garbage,
    "one repeated answer": one_answer,
    "praised wrong answers": wrong_answers,
    "other language": other_language,
}


def change_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path, random.Random], None]:
    def spoil(folder: Path, rng: random.Random) -> None:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        name = rng.choice(sorted(tensors))
        save_file({**tensors, name: change(tensors[name])}, file)

    return spoil


def cut(folder: Path, rng: random.Random) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * rng.random())])


SPOILT: dict[str, Callable[[Path, random.Random], None]] = {
    "NaN": change_tensor(lambda tensor: tensor.index_fill(0, torch.tensor([0]), float("nan"))),
    "exploded": change_tensor(lambda tensor: tensor * 1000),
    "wrong shape": change_tensor(lambda tensor: tensor[:-1].contiguous()),
    "truncated file": cut,
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    chat = ChatModel(str(MODEL))
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    harmful: Counter[str] = Counter()
    streams: dict[str, list[dict[str, Any]]] = defaultdict(list)
    passed: list[dict[str, Any]] = []
    good, rejected, costs, found = 0, [], [], []
    for seed in options.seeds:
        setting = Setting(METHODS["topk_select"], extra=FLAGS)
        trial = GatedTrial(chat, setting, Plan((STUDENT,), options.sessions), seed)
        loop: Any = trial.loop
        for number in range(options.sessions // 3):
            trial._round(3 * number)
        good += len(loop.found) + len(loop.rejections)
        rejected += loop.rejections
        found += loop.found
        trained = sum(step["train_seconds"] for step in loop.metrics)
        costs.append(sum(one["seconds"] for one in loop.found) / trained if trained else 0.0)
        bench = Bench(loop, options.problems) if options.each else None
        for kind in (*SPOILT, *TRAINED) if bench else ():
            rng = random.Random(f"{seed} {kind}")
            for number in range(options.each):
                scale = SCALES[number % 3]
                stage, accuracy = bench.attempt(kind, scale, rng)
                stages[kind][stage or "passed"] += 1
                if accuracy is not None:
                    fall = bench.accuracy - accuracy
                    harmful[kind] += fall >= HARM
                    passed.append({"kind": kind, "scale": scale, "fall": round(fall, 4)})
        if bench and options.stream:
            for kind in TRAINED:
                streams[kind].append(bench.stream(kind, options.stream, random.Random(f"{seed} {kind}")))
        loop.close()
    return {
        "good_updates": good,
        "good_rejected": rejected,
        "largest_good": {
            name: round(max(one.get(name, 0.0) for one in found), 4)
            for name in ("change", "kl", "liked_loss", "same", "endless", "repeating")
        },
        "least_right": round(min((one.get("right", 1.0) for one in found), default=1.0), 4),
        "cost_of_training": [round(cost, 3) for cost in costs],
        "stopped": {kind: dict(count) for kind, count in stages.items()},
        "harmful_passed": dict(harmful),
        "passed": passed,
        "streams": dict(streams),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="trials")
    parser.add_argument("--sessions", type=int, default=24, help="sessions of good updates before")
    parser.add_argument("--each", type=int, default=10, help="bad updates of each kind; 0: good ones alone")
    parser.add_argument("--stream", type=int, default=0, help="bad updates of each kind one on the other")
    parser.add_argument("--problems", type=int, default=200, help="held-out problems of the accuracy")
    started, options = time.monotonic(), parser.parse_args()
    print(json.dumps({**run(options), "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main()
