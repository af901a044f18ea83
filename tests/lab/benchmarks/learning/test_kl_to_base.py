"""KL between two model folders on sampled answers: its value, and the prompts that are asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from claw_lab.benchmarks.learning import folders, kl_to_base
from claw_lab.benchmarks.learning.kl_to_base import Answered, mean_kl, model_of
from tests.fakes.scripted_engine import FakeEngine

BASE = Path(__file__).parents[4] / "openclaw-test" / "tiny_claw" / "model"


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A copy of the tiny model whose final norm is scaled, which makes every distribution flatter."""
    folder = tmp_path / "version"
    shutil.copytree(BASE, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_the_mean_is_over_all_answer_tokens_and_the_whole_vocabulary(version: Path) -> None:
    base, other = model_of(BASE), model_of(version)
    answers = [Answered([5, 6, 7], [8, 9]), Answered([7, 6], [5])]
    expected = []
    for one in answers:
        ids = torch.tensor([one.prompt + one.answer])
        for at in range(len(one.prompt) - 1, ids.shape[1] - 1):
            p, q = (torch.softmax(model(ids).logits[0, at].double(), -1) for model in (base, other))
            expected.append((p * (p / q).log()).sum().item())
    assert mean_kl(base, other, answers) == pytest.approx(sum(expected) / 3, rel=1e-4)
    assert min(expected) > 0 and mean_kl(base, base, answers) == 0


def test_the_base_answers_prompts_of_the_chosen_classes(
    version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_folders: list[Path] = []
    engine = FakeEngine().start()
    prompts = kl_to_base.HintedPrompts.of(BASE)
    engine.say = [*prompts.tokenizer.encode("12 apples."), prompts.stop_ids[0]]

    @contextmanager
    def engine_of(folder: Path, *flags: str) -> Iterator[str]:
        asked_folders.append(folder)
        yield engine.url

    monkeypatch.setattr(folders, "engine_of", engine_of)
    call = [str(BASE), str(version), "--groups", "unrelated", "capability", "--most", "2", "--longest", "16"]
    try:
        report = kl_to_base.measured(kl_to_base.parse(call))
    finally:
        engine.end()
    assert list(report) == ["unrelated", "capability"] and asked_folders == [BASE, BASE]
    assert all(row["answers"] == 2 and row["tokens"] == 2 * len(engine.say) for row in report.values())
    assert all(row["kl"] > 0 for row in report.values())
