"""Measures at which learning rates the first batch of a language model passes the gate, and how far it moves the
model.

`bash lab/run.sh benchmarks.learning.first_batch MODEL` lets people complain about the first answers of a small
language model, trains one batch of these turns with hints by the flags of
openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh, and lets the gate examine the update, in one process: the
real trainer, judge, store and gate. For each learning rate and each number of turns it prints one JSON line: whether
the update is live, the KL of the live step and of the whole step (nats a token), the remaining share of the step, and
the number of quarantined samples. The last line contains all of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.ports import free_port
from claw_lab.offline.gated import GatedLoop
from claw_lab.offline.local_loop import ChatModel, Talk
from claw_lab.offline.methods import Method, Setting
from openclaw_test.evaluation.plain_questions import COMPLAINTS
from openclaw_test.loop.readiness import say

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh"
QUESTIONS = (
    "Why is the sky blue?",
    "How do I get a red wine stain out of a shirt?",
    "What should I look at when I buy a used bicycle?",
    "How does a refrigerator keep things cold?",
    "Why do cats purr?",
    "What is a good way to learn the names of new colleagues?",
    "How long can I keep cooked rice?",
    "What makes bread rise?",
)
OWN = ("hf-checkpoint", "run-dir", "save", "rl-buffer-dir", "lr", "rollout-batch-size", "on-weights-rejected-path",
       "gate-facts")  # fmt: skip
"""Flags that the local loop sets itself or does not use: it records rejections without the hook, and its one engine
cannot answer questions about facts while people talk to it."""
_LINE = re.compile(r"^  --(\S+) +(.*?)  \[(?:script|variable [A-Z_]+)\]$", re.MULTILINE)


def script_flags(script: Path, model: str) -> dict[str, str]:
    """Returns the driver flags of a launch script by name, as its plan prints them."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "DRY_RUN": "1", "MODEL_PATH": model, "RUN_DIR": folder, "VENV": sys.prefix}
        env |= {"PORT": str(free_port())}  # a plan is rejected if another program uses the port
        plan = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=True).stdout
    return dict(_LINE.findall(plan))


def words_of(flags: dict[str, str]) -> list[str]:
    """Returns the command line of such flags."""
    words: list[str] = []
    for name, value in flags.items():
        if value in ("True", "False"):
            words.append(f"--{name}" if value == "True" else f"--no-{name}")
        elif value.startswith("["):
            words += [word for one in ast.literal_eval(value) for word in (f"--{name}", str(one))]
        else:
            words += [f"--{name}", value]
    return words


@dataclass(frozen=True)
class ScriptSetting(Setting):
    """The training settings of a launch script; `extra` are its flags."""

    def flags(self, model_path: str, run_dir: str, seed: int) -> list[str]:
        return [
            *self.extra,
            *("--hf-checkpoint", model_path, "--run-dir", run_dir, "--rl-buffer-dir", run_dir),
            *("--save", f"{run_dir}/checkpoints", "--seed", str(seed)),
            *("--lr", str(self.lr), "--rollout-batch-size", str(self.batch)),
        ]


def setting_of(flags: dict[str, str], lr: float, turns: int, more: Sequence[str]) -> ScriptSetting:
    kept = {name: value for name, value in flags.items() if name not in OWN}
    method = Method("script", SCRIPT.name, flags["method-path"], (), votes=int(flags.get("prm-m", "1")))
    return ScriptSetting(method, lr=lr, batch=turns, extra=(*words_of(kept), *more))


def complain(loop: GatedLoop, questions: Sequence[str], rng: random.Random) -> None:
    """Asks each question in a new session, and complains about the answer."""
    talks = [Talk([], f"session-{uuid.uuid4().hex[:8]}", person="ada") for _ in questions]
    for talk, question in zip(talks, questions, strict=True):
        loop.follow(talk, question)
    loop.say(talks)
    for talk in talks:
        loop.follow(talk, rng.choice(COMPLAINTS))


def first_batch(chat: ChatModel, setting: ScriptSetting, seed: int) -> dict[str, Any]:
    """Lets people complain once each about the first answers; returns the result of the update."""
    began, rng = time.monotonic(), random.Random(seed)
    loop = GatedLoop(chat, setting, seed)
    try:
        topics = rng.sample(QUESTIONS, len(QUESTIONS))
        updates, asked = 0, topics[: setting.batch]
        while asked and not updates:
            complain(loop, asked, rng)
            updates = loop.learn()
            # the rules judge finds no hint in some complaints, and then the batch needs one more
            topics = topics[len(asked) :]
            asked = topics[:1]
        measurements = loop.measurements[-1] if loop.measurements else {}
        counts = loop.store.status.counts()["samples"]
        return {
            "lr": setting.lr,
            "turns": setting.batch,
            "updates": updates,
            "live": loop.live.version == 1 and not loop.rejections and not loop.undone,
            "reason": [*(reason for _, reason in loop.rejections), *loop.undone],
            **{name: _rounded(measurements.get(name)) for name in MEASURES},
            "quarantined": counts.get("quarantined", 0),
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        loop.close()


MEASURES = ("kl", "whole_kl", "step_share", "change", "teacher_kl", "most_kl", "obeyed", "right")


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="folder of SmolLM2-135M-Instruct, or of another small language model")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[1e-5, 6e-5, 3e-4], help="learning rates to try"
    )
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4], help="turns with hints in the batch")
    parser.add_argument("--flags", default="", help="further flags of the driver")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main() -> None:
    options = parse()
    flags, chat = script_flags(SCRIPT, options.model), ChatModel(options.model)
    rows = []
    for turns in options.turns:
        for lr in options.rates:
            setting = setting_of(flags, lr, turns, options.flags.split())
            rows.append(first_batch(chat, setting, options.seed))
            say(json.dumps(rows[-1]))
    print(json.dumps({"batches": rows}))


if __name__ == "__main__":
    main()
