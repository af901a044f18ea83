"""Counts the source files of this repository that process a request, from HTTP to the optimizer step.

`bash lab/run.sh benchmarks.serving.files_on_the_path` streams three turns of a conversation through the gateway in
this process, from an engine that samples nothing; judges them by rules, for Binary RL; leases them; and trains the
shipped tiny model on the two samples, with FSDP in one process. It prints one JSON line: for each stage and in total,
the files with a called function, these functions, and their calls. `--list` adds the names.

Stages: `serve` is the second of the three turns, from its first byte until it is stored; `judge` is from the claim of
both answered turns until their samples are stored; `lease` is the method's rollout function; `batch` is the rollout
manager's part; `train` is `Trainer.train`. Ray, the driver's loop and the weight update are not run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import json
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

from claw_base.ports import listen
from claw_lab import MODEL, ROOT
from claw_lab.benchmarks.serving.fake_engine import fake_engine
from openclaw.judge import worker
from openclaw.server import serve
from openclaw.settings import load_settings
from openclaw.trainer_hooks.lease import lease_batch
from slime.arguments import Arguments, parse_args
from slime.hooks import load_hook
from slime.rollout.service import RolloutService
from slime.training.fsdp import FSDPTrainer
from slime.types import Sample

METHODS = ("openclaw-rl", "openclaw-opd", "openclaw-combine")
OURS = tuple(f"{ROOT / folder}{os.sep}" for folder in ("openclaw", "slime/slime", *METHODS))

KEY = "secret-of-this-benchmark"
TALK = (
    "Tom has 12 apples and buys 7 more. How many apples does Tom have?",
    "Thank you, that is right! And with 3 more?",
    "No, that is wrong.",
)
PATIENCE = 60.0  # seconds
JUDGED = "SELECT COUNT(*) FROM turn WHERE state = 'judged'"


@dataclass
class Recorder:
    """Counts calls of this repository's functions by stage, in all threads started after `install`.

    Attributes:
        leg: the stage that is counted; None counts nothing.
        begins: (stage, qualified name of a function); the stage begins with the next call of it.
    """

    leg: str | None = None
    begins: tuple[str, str] | None = None
    calls: dict[str, Counter[CodeType]] = field(default_factory=dict)

    def install(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    @contextlib.contextmanager
    def counting(self, leg: str) -> Iterator[None]:
        self.leg = leg
        try:
            yield
        finally:
            self.leg = None

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if self.begins is not None and code.co_qualname == self.begins[1]:
            self.leg, self.begins = self.begins[0], None
        leg = self.leg
        if leg is not None and code.co_filename.startswith(OURS) and _starts(frame, code):
            self.calls.setdefault(leg, Counter())[code] += 1

    def report(self, with_names: bool) -> dict[str, Any]:
        """Returns the counts of each stage and of all together; files by their paths in this repository."""
        together = sum(self.calls.values(), Counter[CodeType]())
        legs: dict[str, Any] = {leg: _numbers(calls, with_names) for leg, calls in self.calls.items()}
        return legs | {"together": _numbers(together, with_names)}


def _starts(frame: FrameType, code: CodeType) -> bool:
    """Returns whether a function begins, as opposed to a module or class body, a comprehension, or a resumed
    coroutine."""
    if not code.co_flags & inspect.CO_OPTIMIZED or code.co_name.startswith(
        ("<list", "<dict", "<set", "<gen")
    ):
        return False
    return code.co_code[frame.f_lasti + 1] & 3 == 0  # the argument of RESUME


def _numbers(calls: Counter[CodeType], with_names: bool) -> dict[str, Any]:
    names = {code.co_filename for code in calls}
    numbers: dict[str, Any] = {"files": len(names), "functions": len(calls), "calls": calls.total()}
    if with_names:
        numbers["names"] = sorted(str(Path(name).relative_to(ROOT)) for name in names)
    return numbers


async def talk(engine: str, buffer: Path, recorder: Recorder) -> None:
    """Sends three turns through a gateway of this process; the second is counted."""
    listener = listen("127.0.0.1", 0)
    words = ["--model-path", str(MODEL), "--engine-url", engine, "--enable-rl-intercept"]
    settings = load_settings([*words, "--rl-buffer-dir", str(buffer)], {"OPENCLAW_API_KEY": KEY})
    gateway = asyncio.create_task(serve(settings, listener))
    messages: list[dict[str, str]] = []
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {KEY}", "X-Session-Id": "path"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False) as client:
        for number, text in enumerate(TALK):
            messages.append({"role": "user", "content": text})
            with recorder.counting("serve") if number == 1 else contextlib.nullcontext():
                answer = await stream(client, messages)
            messages.append({"role": "assistant", "content": answer})
    os.kill(os.getpid(), signal.SIGTERM)
    await gateway


async def stream(client: httpx.AsyncClient, messages: list[dict[str, str]]) -> str:
    """Returns the text of a streamed answer."""
    pieces = []
    async with client.stream(
        "POST", "/v1/chat/completions", json={"stream": True, "messages": messages}
    ) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line[6:])["choices"]
                pieces += [choice["delta"].get("content") or "" for choice in choices]
    return "".join(pieces)


async def judge(buffer: Path, recorder: Recorder) -> None:
    """Judges both answered turns, which become samples."""
    words = ["--rl-buffer-dir", str(buffer), "--method-path", "openclaw_rl.binary_rl:sample_from_judged_turn"]
    recorder.begins = ("judge", "JudgeWorker.run")
    running = asyncio.create_task(worker.serve(worker.build_parser().parse_args(words)))
    deadline = time.monotonic() + PATIENCE
    with sqlite3.connect(f"file:{buffer / 'buffer.db'}?mode=ro", uri=True) as database:
        while database.execute(JUDGED).fetchone()[0] < len(TALK) - 1:
            assert not running.done() and time.monotonic() < deadline, "the turns were not judged"
            await asyncio.sleep(0.02)
    recorder.leg = None
    os.kill(os.getpid(), signal.SIGTERM)
    await running


def training_arguments(run: Path) -> Arguments:
    """Returns the arguments of the tiny launch script of Binary RL, without the reference model."""
    words = ["--hf-checkpoint", str(MODEL), "--run-dir", str(run), "--save", str(run / "checkpoints")]
    words += ["--disable-rollout-global-dataset", "--service-path", "openclaw.trainer_hooks.services.start"]
    words += ["--rollout-batch-size", "2", "--reward-key", "score", "--rl-buffer-dir", str(run / "buffer")]
    words += ["--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"]
    words += ["--on-weights-live-path", "openclaw.trainer_hooks.lease.on_weights_live"]
    words += ["--method-path", "openclaw_rl.binary_rl:sample_from_judged_turn"]
    return parse_args([*words, "--advantage-estimator", "grpo", "--disable-rewards-normalization"], env={})


def train(run: Path, recorder: Recorder) -> None:
    """Leases the samples and trains on them."""
    args = training_arguments(run)
    rollout_function = load_hook(args, "rollout_function_path")
    lease_batch(args, 0)  # opens the store; the same rollout id leases the same samples again
    with recorder.counting("lease"):
        rollout_function(args, 0, None, evaluation=False)
    manager = RolloutService(args)
    with recorder.counting("batch"):
        samples: Sequence[Sample] = manager.generate(0)[0]
    trainer = FSDPTrainer(args)
    with recorder.counting("train"):
        trainer.train(0, samples)
    trainer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the files on the path of a token id.")
    parser.add_argument("--list", action="store_true", help="print the file names")
    args = parser.parse_args()
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, fake_engine() as engine:
        run = Path(folder)
        with contextlib.redirect_stdout(sys.stderr):
            recorder.install()
            asyncio.run(talk(engine, run / "buffer", recorder))
            asyncio.run(judge(run / "buffer", recorder))
            train(run, recorder)
            sys.setprofile(None)
    print(json.dumps(recorder.report(args.list)))


if __name__ == "__main__":
    main()
