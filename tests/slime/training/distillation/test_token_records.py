"""Tests the readable record of every trained token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.testing import assert_close

from tests.fakes.fixtures import MakeHinted, MakeTrainer

SELECT: dict[str, Any] = {
    "loss_spec_path": "openclaw_combine.loss:topk_select",
    "hint_selection": "token_optimal",
}


def records(folder: Path, rollout_id: int) -> list[dict[str, Any]]:
    lines = (folder / "token_records" / f"rollout-{rollout_id:06d}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_trained_token_has_its_advantage_log_prob_hint_and_disagreement(
    make_trainer: MakeTrainer, make_samples: MakeHinted, tmp_path: Path
) -> None:
    trainer = make_trainer(**SELECT, teacher_source="trainer", keep_token_records=2, run_dir=str(tmp_path))
    samples = make_samples((1, 3, 0), metadata={"turn_id": "t"})
    expected = trainer.log_probs(samples)
    trainer.train(0, samples)
    found = records(tmp_path, 0)
    assert [row["sample"] for row in found] == [0, 1, 2] and found[0]["turn_id"] == "t"
    for row, sample, log_probs in zip(found, samples, expected, strict=True):
        assert (row["rollout_id"], row["version"]) == (0, trainer.version)
        kept = [t for t, trained in enumerate(sample.mask) if trained]
        assert [t for t, value in enumerate(row["log_prob"]) if value is not None] == kept
        assert_close([row["log_prob"][t] for t in kept], [log_probs[t] for t in kept], rtol=1e-4, atol=1e-5)
        assert {row["advantage"][t] for t in kept} == {sample.reward}
        count = len(sample.teacher_tokens_candidates or ())
        assert {row["hint"][t] for t in kept} <= set(range(count)) if count else "hint" not in row
        if count:
            assert all(row["teacher_gap"][t] is not None for t in kept)


def test_the_disagreement_with_a_sampled_token_teacher_is_the_log_prob_difference(
    make_trainer: MakeTrainer, make_samples: MakeHinted, tmp_path: Path
) -> None:
    trainer = make_trainer(use_opd=True, opd_kl_coef=1.0, keep_token_records=2, run_dir=str(tmp_path))
    samples = make_samples((0, 0))
    samples[0].teacher_log_probs = [-2.0] * samples[0].response_length
    trainer.train(0, samples)
    first, second = records(tmp_path, 0)
    known = [
        (own, gap)
        for own, gap in zip(first["log_prob"], first["teacher_gap"], strict=True)
        if own is not None
    ]
    assert_close([own + 2.0 for own, _ in known], [gap for _, gap in known], rtol=1e-3, atol=1e-3)
    assert "teacher_gap" not in second


@pytest.mark.parametrize("kept", [0, 2])
def test_only_the_newest_rollouts_are_kept(
    make_trainer: MakeTrainer, make_samples: MakeHinted, tmp_path: Path, kept: int
) -> None:
    trainer = make_trainer(keep_token_records=kept, run_dir=str(tmp_path))
    for rollout_id in range(4):
        trainer.train(rollout_id, make_samples((0,)))
    names = sorted(path.name for path in (tmp_path / "token_records").glob("*"))
    assert names == ([] if kept == 0 else ["rollout-000002.jsonl", "rollout-000003.jsonl"])
