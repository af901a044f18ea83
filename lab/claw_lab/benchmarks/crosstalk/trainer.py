"""The part of a trainer that decides who learns from what, without a model: an adapter learns the words of its batch.

Batches are leased, prepared, committed and forgotten by the hooks of `openclaw.trainer_hooks`; the driver's part of a
deletion is done as in `slime.ray.forgetting`.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_base.files import write_json
from claw_base.run_folder import forgetting
from claw_lab import MODEL
from claw_lab.benchmarks.crosstalk.engine import LEARNED, RememberingEngine
from claw_lab.benchmarks.crosstalk.words import Findings, Words
from openclaw.engine.live_adapter import LIVE, home_of
from openclaw.trainer_hooks import lease
from openclaw.trainer_hooks.adapter_turns import due_adapter, for_adapter
from openclaw.trainer_hooks.pipeline import pipeline_of
from openclaw.types import SampleRecord
from tests.fakes.hook_flags import hook_flags

METHOD = "openclaw_combine.topk_select:sample_from_judged_turn"
FLAGS: dict[str, Any] = {
    "rollout_batch_size": 8, "batch_timeout": 2.0, "train_adapters": "per-key", "replay_steps": 1,
    "replay_samples": 4, "standing_wishes": "person", "method_path": METHOD, "teacher_source": "trainer",
    "memory": True, "session_ttl": 900.0,
}  # fmt: skip


class WordTrainer:
    """Trains and forgets adapters, one step at a time.

    Attributes:
        samples, steps, forgotten: how many were trained, taken and completed.
    """

    def __init__(self, run_dir: Path, words: Words, engine: RememberingEngine, findings: Findings) -> None:
        self._run_dir, self._words, self._engine, self._findings = run_dir, words, engine, findings
        self.args = hook_flags(
            str(run_dir / "buffer"), run_dir=str(run_dir), hf_checkpoint=str(MODEL), **FLAGS
        )
        self._versions: dict[str, int] = {}
        self._learned: dict[str, set[str]] = {}
        self.samples = self.steps = self.forgotten = 0
        logging.getLogger("openclaw.trainer_hooks.next_batch").setLevel(logging.ERROR)

    def work(self) -> bool:
        """Completes deletions, then trains a batch if one is due; returns whether there was anything to do."""
        forgotten = [one for one in forgetting.waiting(self._run_dir) if one.rows_deleted]
        for one in forgotten:
            self._forget(one)
        due = due_adapter(self.args, self.steps)
        if due is not None:
            self._train(*due)
        return due is not None or bool(forgotten)

    def is_behind(self) -> bool:
        """Returns whether turns wait for the judge, or samples of adapters for a step."""
        store = pipeline_of(self.args).store
        return store.judgements.answered_count() > 0 or bool(store.policies.waiting())

    def _train(self, name: str, records: Sequence[SampleRecord]) -> None:
        of_adapter = for_adapter(self.args, name)
        rows = pipeline_of(of_adapter).prepare(records, self.steps).rows
        marked = self._words.in_value(rows)
        for word in marked:
            if self._words.owners[word].adapter != name or word in self._words.unstored | self._words.gone:
                self._findings.add("batch", f"{name} was trained on {word} of {self._words.owners[word]}")
        parent, version = self._versions.get(name, 0), self._versions.get(name, 0) + 1
        self._versions[name] = version
        learned = self._learned.setdefault(name, set())
        learned |= marked
        folder = self._folder(name) / f"v{version}"
        folder.mkdir(parents=True)
        (folder / LEARNED).write_text(json.dumps(sorted(learned)))
        home = home_of(self._run_dir, name)
        home.mkdir(parents=True, exist_ok=True)
        live = {
            "version": version,
            "path": str(folder),
            "checksum": f"{name}{version}",
            "rollout_id": self.steps,
        }
        write_json(home / LIVE, live)
        self._engine.load(name, str(folder), version)
        lease.on_weights_live(of_adapter, self.steps, version, {**live, "parent": parent, "restored": False})
        self.steps += 1
        self.samples += len(records)

    def _forget(self, one: forgetting.Forgetting) -> None:
        if one.adapter is not None:
            home = home_of(self._run_dir, one.adapter)
            (home / LIVE).unlink(missing_ok=True)
            shutil.rmtree(self._folder(one.adapter), ignore_errors=True)
            self._engine.unload(one.adapter)
            self._learned.pop(one.adapter, None)
            version = self._versions.get(one.adapter, 0)
            lease.on_weights_live(
                for_adapter(self.args, one.adapter), self.steps, version, {"forgotten": True}
            )
        forgetting.finish(self._run_dir, one.person)
        self.forgotten += 1

    def _folder(self, name: str) -> Path:
        return self._run_dir / "checkpoints" / "policies" / name
