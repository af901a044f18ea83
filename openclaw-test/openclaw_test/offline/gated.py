"""The loop without processes, with the gate before every update; the same decisions as in the driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from openclaw.trainer_hooks.lease import sample_dict
from openclaw_test.offline.local_loop import ChatModel, LocalLoop
from openclaw_test.offline.methods import Setting
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
    *("--gate-data", str(Path(__file__).resolve().parents[2] / "tiny_claw" / "gate.jsonl")),
)


class LocalTrainer:
    """The trainer of this process, as the gate asks it."""

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

    def scale_learning_rate(self, scale: float) -> None:
        self.trainer.rate_scale = scale


class LocalTries:
    """The engine of this process answers with other weights and gets its own back."""

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat

    def try_weights(
        self, path: str, version: int, prompts: Sequence[list[int]], max_new_tokens: int
    ) -> list[Mapping[str, Any]]:
        engine = self.chat.engine
        before = {name: tensor.clone() for name, tensor in engine.tensors().items()}, engine.version
        engine.install(load_file(Path(path) / "model.safetensors"), version)
        replies = engine.generate(prompts, range(len(prompts)), 0.0, max_new_tokens)
        engine.install(*before)
        texts = [
            str(self.chat.read(prompt, reply)["content"] or "")
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        return [
            {"ids": reply.ids, "log_probs": reply.log_probs, "text": text, "ended": reply.finish == "stop"}
            for reply, text in zip(replies, texts, strict=True)
        ]


class GatedLoop(LocalLoop):
    """As LocalLoop; `rejections` are those of its own updates.

    Attributes:
        last: the newest batch that was trained on.
    """

    def __init__(self, chat: ChatModel, setting: Setting, seed: int) -> None:
        super().__init__(chat, setting, seed)
        assert self.trainer is not None
        self.folder = Path(self._folder.name) / "versions"
        self.local, self.tries = LocalTrainer(self.trainer), LocalTries(chat)
        self.gate = CandidateGate(self.args)
        self.live = self.export()
        self.gate.begin(self.local, -1, self.live)
        self.rejections: list[tuple[str, str]] = []
        self.found: list[dict[str, float]] = []
        self.last: list[Sample] = []

    def export(self) -> WeightVersion:
        assert self.trainer is not None
        folder = artifact_folder(self.folder, self.version)
        return WeightVersion(
            self.version, str(folder), self.trainer.export_weights(str(folder), self.version)
        )

    def examine(self, spoil: Callable[[Path], None] = lambda folder: None) -> dict[str, float]:
        """Exports what the trainer holds as the next version and examines it; raises CandidateRejected."""
        parent, self.version = self.live.version, self.version + 1
        weights = self.export()
        spoil(Path(weights.path))
        self.candidate = Candidate(weights, self.rollouts, parent)
        return self.gate.examine(self.local, self.candidate, self.live, [self.tries])

    def undo(self, rejection: CandidateRejected) -> None:
        self.gate.reject(self.local, self.candidate, rejection)
        shutil.rmtree(self.candidate.weights.path, ignore_errors=True)

    def _update(self, trainer: FSDPTrainer) -> None:
        records = self.store.lease(self.rollouts, self.args.rollout_batch_size)
        samples = [Sample.from_dict(sample_dict(record, self.rollouts)) for record in records]
        self.last = samples
        process = load_hook(self.args, "custom_reward_post_process_path")
        self.metrics.append(trainer.train(self.rollouts, post_processed(self.args, samples, process, None)))
        try:
            found = self.examine()
        except CandidateRejected as rejection:
            self.undo(rejection)
            self.rejections.append((rejection.stage, str(rejection)))
            details = {"reason": str(rejection)}
            self.store.weights_rejected(self.rollouts, self.version, self.live.version, None, details)
        else:
            self.chat.engine.install(gather_weights(trainer.model, None, keep=True), self.version)
            self.store.weights_live(self.rollouts, self.version, self.live.version, False, None, None)
            shutil.rmtree(self.live.path, ignore_errors=True)
            self.live = self.candidate.weights
            self.gate.accept(self.local, found)
            self.found.append(found)
        self.rollouts += 1
