"""The loop without processes, with a gate before each update; it decides as the driver does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from claw_lab import MODEL
from claw_lab.offline.local_loop import ChatModel, LocalLoop
from claw_lab.offline.methods import Setting
from claw_lab.offline.trial import Plan, Trial
from openclaw.types import SampleRecord
from slime.gate.files import measure_files
from slime.gate.gate import CandidateGate
from slime.gate.memory import KeptState
from slime.hooks import load_hook
from slime.rollout.post_process import post_processed
from slime.training.fsdp import FSDPTrainer
from slime.training.fsdp.model import gather_weights
from slime.types import Sample
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion, artifact_folder

FLAGS = (
    "--gate",
    *("--gate-samples-path", "openclaw.trainer_hooks.gate_samples.gate_samples"),
    *("--gate-data", str(MODEL.with_name("gate.jsonl"))),
    *("--gate-max-wrong", "0.008"),
)


class LocalTrainer:
    """The trainer of this process, with the gate's interface."""

    def __init__(self, trainer: FSDPTrainer) -> None:
        self.trainer = trainer

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        return measure_files(candidate, live)

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        return self.trainer.log_probs(samples)

    def keep_state(self) -> None:
        self.kept = KeptState(self.trainer)

    def go_back(self) -> None:
        self.kept.restore(self.trainer)

    def shrink(self, share: float) -> None:
        self.kept.shrink(self.trainer, share)

    def scale_learning_rate(self, scale: float) -> None:
        self.trainer.rate_scale = scale


class LocalTries:
    """Lets the engine of this process answer with other weights, then restores its own."""

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat

    def discard(self) -> None:
        """Does nothing, since nothing is prepared here."""

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        max_new_tokens: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Mapping[str, Any]]:
        engine = self.chat.engine
        before = {name: tensor.clone() for name, tensor in engine.tensors().items()}, engine.version
        engine.install(load_file(Path(path) / "model.safetensors"), version)
        if temperature > 0:
            replies = engine.generate(prompts, range(len(prompts)), temperature, max_new_tokens)
        else:
            replies = engine.greedy(prompts, max_new_tokens, drafts)
        engine.install(*before)
        texts = [
            str(self.chat.read(prompt, reply)["content"] or "")
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        return [
            {"ids": reply.ids, "log_probs": reply.log_probs, "text": text, "ended": reply.finish == "stop"}
            for reply, text in zip(replies, texts, strict=True)
        ]


@dataclass(frozen=True)
class LoopState:
    """The live version: the trainer's state, the version number, and the engine's tensors."""

    trainer: KeptState
    live: WeightVersion
    engine: dict[str, Tensor]


class GatedLoop(LocalLoop):
    """A LocalLoop with a gate; `rejections` are those of its own updates.

    Attributes:
        last: the newest trained batch.
        good: the state of trainer and engine at the newest version that answered all questions.
        audit_seconds: seconds of the questions after the switches.
        undone: versions that answered people and were rolled back.
    """

    def __init__(self, chat: ChatModel, setting: Setting, seed: int) -> None:
        super().__init__(chat, setting, seed)
        assert self.trainer is not None
        self.folder = Path(self._folder.name) / "versions"
        self.local, self.tries = LocalTrainer(self.trainer), LocalTries(chat)
        self.gate = CandidateGate(self.args)
        self.audit_seconds = 0.0
        self.live = self.export()
        self.gate.begin(self.local, -1, self.live, [self.tries])
        self.collect()
        self.good = self.state()
        self.rejections: list[tuple[str, str]] = []
        self.undone: list[str] = []
        self.measurements: list[dict[str, float]] = []
        self.last: list[Sample] = []

    def state(self) -> LoopState:
        assert self.trainer is not None
        tensors = {name: tensor.clone() for name, tensor in self.chat.engine.tensors().items()}
        return LoopState(KeptState(self.trainer), self.live, tensors)

    def return_to(self, state: LoopState) -> None:
        """Restores trainer, engine and gate to a state."""
        assert self.trainer is not None
        kept, self.live, tensors = state.trainer, state.live, state.engine
        kept.restore(self.trainer)
        self.chat.engine.install(tensors, self.live.version)
        self.gate.begin(self.local, self.rollouts, self.live)

    def export(self) -> WeightVersion:
        assert self.trainer is not None
        folder = artifact_folder(self.folder, self.version)
        return WeightVersion(
            self.version, str(folder), self.trainer.export_weights(str(folder), self.version)
        )

    def examine(
        self, spoil: Callable[[Path], None] = lambda folder: None, metrics: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Exports the trainer's weights as the next version and examines it; raises CandidateRejected.

        Args:
            metrics: of its training step.
        """
        known = {f"train/{name}": value for name, value in (metrics or {}).items()}
        parent, self.version = self.live.version, self.version + 1

        def write() -> None:
            weights = self.export()
            spoil(Path(weights.path))
            self.candidate = Candidate(weights, self.rollouts, parent, metrics=known)

        write()
        return self.gate.examine(self.local, self.candidate, self.live, [self.tries], write)

    def undo(self, rejection: CandidateRejected) -> None:
        self.gate.reject(self.local, self.candidate, rejection)
        shutil.rmtree(self.candidate.weights.path, ignore_errors=True)

    def collect(self) -> str | None:
        """Waits until the live version has answered all questions."""
        began, audit = time.monotonic(), self.gate.audit
        if audit.running is not None:
            audit.running.result()
        self.audit_seconds += time.monotonic() - began
        return audit.collect()

    def go_live(self, measurements: dict[str, float]) -> str | None:
        """Makes the candidate live; returns the reason if it is rolled back after all questions were asked."""
        assert self.trainer is not None
        self.chat.engine.install(gather_weights(self.trainer.model, None, keep=True), self.version)
        self.live = self.candidate.weights
        self.gate.accept(self.local, measurements)
        reason = self.collect()
        if reason is not None:
            self.undone.append(reason)
            self.return_to(self.good)
        else:
            self.good = self.state()
        return reason

    def _update(self, trainer: FSDPTrainer, records: list[SampleRecord]) -> None:
        rows = self.pipeline.prepare(records, self.rollouts).rows
        samples = [Sample.from_dict(row) for row in rows]
        self.last = [one for one in samples if not one.companion]
        process = load_hook(self.args, "custom_reward_post_process_path")
        self.metrics.append(trainer.train(self.rollouts, post_processed(self.args, samples, process, None)))
        try:
            measurements = self.examine(metrics=self.metrics[-1])
        except CandidateRejected as rejection:
            self.undo(rejection)
            self.rejections.append((rejection.stage, str(rejection)))
            details = {"reason": str(rejection)}
            self.store.versions.weights_rejected(
                self.rollouts, self.version, self.live.version, None, details
            )
        else:
            parent = self.live.version
            self.store.versions.weights_live(self.rollouts, self.version, parent, False, None, None)
            self.go_live(measurements)
            self.measurements.append(measurements)
        self.rollouts += 1


class GatedTrial(Trial):
    """People who talk with the gated loop; `setting` must hold `FLAGS`."""

    def __init__(self, chat: ChatModel, setting: Setting, plan: Plan, seed: int) -> None:
        super().__init__(chat, setting, plan, seed)
        self.loop.close()
        self.loop: Any = GatedLoop(chat, setting, seed)
