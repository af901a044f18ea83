"""The whole loop in one file: serve, sample, judge, train, publish.

    python slime/examples/rl_in_one_file.py --model openclaw-test/tiny_claw/model --updates 10

An engine serves a small model over HTTP. A person asks it sums; the model answers in bold, numbered lists, but this
person wants plain sentences. Each answer is judged, a trainer learns from the exact token ids that were sampled, and
the new weights go live while the engine answers. It needs no GPU and takes about a minute.

All parts are those of the project; `slime/train_async.py` adds Ray, several machines, restarts and the gate, and
`openclaw/` adds the OpenAI-compatible API, the store and judges for real users' messages.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from claw_base.ports import free_port
from slime.arguments import Arguments
from slime.engines.client import EngineControl
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion, artifact_folder

TEMPERATURE = 0.6
MAX_NEW_TOKENS = 160
START_SECONDS = 120.0


@contextmanager
def serve(model: str) -> Iterator[EngineControl]:
    """Starts the engine as a subprocess and yields the client that updates its weights."""
    port = free_port()
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded", "--model-path", model]
    command += ["--port", str(port), "--device", "cpu", "--standby", "off"]
    process = subprocess.Popen(command)
    try:
        with EngineControl(f"http://127.0.0.1:{port}", "embedded") as engine:
            deadline = time.monotonic() + START_SECONDS
            while not engine.health():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("error: the engine did not start; its output is above")
                time.sleep(0.1)
            yield engine
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Question:
    """A person's question, and the number that a right answer contains."""

    text: str
    answer: int


def ask_something(chance: random.Random) -> Question:
    """Returns a sum in words, as the model was trained to answer."""
    name, thing = (
        chance.choice(["Tom", "Mia", "Sam", "Eva"]),
        chance.choice(["apples", "books", "coins", "shells"]),
    )
    first, second = chance.randint(2, 40), chance.randint(2, 40)
    text = f"{name} has {first} {thing} and buys {second} more. How many {thing} does {name} have?"
    return Question(text, first + second)


@dataclass
class Policy:
    """The served model for a client: sends token ids, returns sampled token ids."""

    url: str
    tokenizer: PreTrainedTokenizerBase
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=120.0, trust_env=False))

    def sample(self, question: Question, group: int, seed: int) -> Sample:
        """Returns one answer with log-prob and weight version of every token, as sampled by the engine."""
        messages = [{"role": "user", "content": question.text}]
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        sampling = {"temperature": TEMPERATURE, "max_new_tokens": MAX_NEW_TOKENS, "seed": seed}
        body = {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True}
        answer = self.client.post(f"{self.url}/generate", json=body).raise_for_status().json()
        meta = answer["meta_info"]
        ids = [token for _, token, *_ in meta["output_token_logprobs"]]
        return Sample(
            group_index=group,
            index=seed,
            prompt=question.text,
            tokens=[*prompt, *ids],
            response=self.tokenizer.decode(ids, skip_special_tokens=True),
            response_length=len(ids),
            label=question.answer,
            rollout_log_probs=[log_prob for log_prob, *_ in meta["output_token_logprobs"]],
            version_spans=[
                (int(one["version"]), one["start"], one["end"]) for one in meta["weight_versions"]
            ],
            temperature=TEMPERATURE,
        )


def judge(sample: Sample) -> float:
    """Returns the score of an answer: 1 if it is right and in plain sentences, 0 if only one of both holds, else
    -1."""
    plain = not re.search(r"\*\*|^\s*(\d+\.|-)\s", sample.response, re.MULTILINE)
    right = re.search(rf"\b{sample.label}\b", sample.response) is not None
    return float(plain + right - 1)


def pleased(samples: Sequence[Sample]) -> float:
    """Returns the share of answers that deserve the highest score."""
    return sum(sample.reward == 1.0 for sample in samples) / len(samples)


def make_trainer(model: str, folder: Path, questions: int, answers: int, seed: int) -> FSDPTrainer:
    """Returns a trainer with GRPO on one CPU rank: answers to the same question are compared."""
    return FSDPTrainer(
        Arguments(
            hf_checkpoint=model,
            ref_load=model,
            save=str(folder / "checkpoints"),
            rollout_batch_size=questions,
            n_samples_per_prompt=answers,
            global_batch_size=questions * answers,
            advantage_estimator="grpo",
            eps_clip_high=0.28,
            use_kl_loss=True,
            kl_loss_coef=0.05,
            calculate_per_token_loss=True,
            lr=4e-3,
            adam_eps=3e-3,
            weight_decay=0.0,
            seed=seed,
        )
    )


def publish(trainer: FSDPTrainer, update: WeightUpdate, folder: Path, rollout_id: int) -> None:
    """Writes the new weights, lets the engine verify and prepare them, and switches between two decode steps."""
    version = trainer.version + 1
    path = artifact_folder(folder / "weights", version)
    checksum = trainer.export_weights(str(path), version)
    weights = WeightVersion(version, str(path), checksum)
    update.publish(Candidate(weights, rollout_id, parent=version - 1))


class Visitor(threading.Thread):
    """A client that continuously talks to the model: counts answers, failures, and answers that span an update."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(daemon=True)
        self.policy, self.leaving = policy, threading.Event()
        self.answers = self.failures = self.spanning = 0

    def run(self) -> None:
        chance = random.Random(0)
        while not self.leaving.is_set():
            try:
                sample = self.policy.sample(ask_something(chance), group=0, seed=chance.randrange(1 << 30))
            except httpx.HTTPError:
                self.failures += 1
                continue
            self.answers += 1
            self.spanning += len({version for version, _, _ in sample.version_spans}) > 1


def rollout(policy: Policy, questions: int, answers: int, chance: random.Random) -> list[Sample]:
    """Asks `questions` questions, `answers` times each, all concurrently, and judges every answer."""
    asked = [(group, ask_something(chance)) for group in range(questions)]
    jobs = [(question, group, chance.randrange(1 << 30)) for group, question in asked for _ in range(answers)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        samples = list(pool.map(lambda job: policy.sample(*job), jobs))
    for sample in samples:
        sample.reward = judge(sample)
    return samples


def run(model: str, updates: int, questions: int, answers: int, seed: int) -> tuple[list[float], Visitor]:
    """Runs the loop; returns the share of top-scored answers before each update and after the last, and the
    visitor."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="rl-in-one-file-") as name, serve(model) as engine:
        folder = Path(name)
        trainer = make_trainer(model, folder, questions, answers, seed)
        policy = Policy(engine.url, AutoTokenizer.from_pretrained(model, trust_remote_code=False))
        visitor = Visitor(Policy(engine.url, policy.tokenizer))
        live = WeightUpdate(
            [engine], folder, lambda candidate: setattr(trainer, "version", candidate.weights.version)
        )
        visitor.start()
        curve = []
        for rollout_id in range(updates):
            samples = rollout(policy, questions, answers, chance)
            curve.append(pleased(samples))
            metrics = trainer.train(rollout_id, samples)
            publish(trainer, live, folder, rollout_id)
            gap = metrics["train_rollout_logprob_abs_diff"]
            print(
                f"version {trainer.version}: pleased {curve[-1]:.2f} before it, log-prob gap {gap:.1e}",
                flush=True,
            )
        curve.append(pleased(rollout(policy, questions, answers, chance)))
        visitor.leaving.set()
        visitor.join()
        print(f"pleased {curve[0]:.2f} -> {curve[-1]:.2f}; meanwhile a visitor had {visitor.answers} answers, "
              f"{visitor.spanning} of them across an update, {visitor.failures} failed")  # fmt: skip
        trainer.close()
        return curve, visitor


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="openclaw-test/tiny_claw/model", help="Hugging Face folder of the model"
    )
    parser.add_argument("--updates", type=int, default=10, help="number of weight updates")
    parser.add_argument("--questions", type=int, default=8, help="questions before each update")
    parser.add_argument("--answers", type=int, default=8, help="answers to each question")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(options.model, options.updates, options.questions, options.answers, options.seed)


if __name__ == "__main__":
    main()
