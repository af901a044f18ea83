"""A function is checked as a method before a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openclaw.methods.__main__ import main
from tests import ROOT

TINY = ROOT / "openclaw-test" / "tiny_claw" / "model"
GOOD = """
from openclaw.methods.method import eval_score
from openclaw.types import Drop, SampleDraft

def make(turn, judgements):
    score = eval_score(judgements)
    return SampleDraft(turn_id=turn.id, reward={"score": score}) if score else Drop("neutral")
"""


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return f"{file}:make"


def test_a_custom_function_is_called_with_a_judged_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, GOOD)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "praise: a sample: score 1",
        "a complaint with a hint: a sample: score -1",
        "a complaint without one: a sample: score -1",
        "a new task: dropped: neutral",
    ]


@pytest.mark.parametrize(
    "path",
    ["openclaw_opd.opd", "openclaw_opd.opd_topk", "openclaw_combine.combine", "openclaw_combine.topk_select"],
)
def test_methods_with_hints_see_them_in_their_prompts(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{path}:sample_from_judged_turn"
    assert main([name, "--model-path", str(TINY)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert ["hinted prompts for the teacher: 1" in line for line in told] == [False, True, False, False]
    assert main([name]) == 1
    assert "--model-path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("return {'reward': 1.0}", "praise: .* returned a dict, neither a SampleDraft nor a Drop"),
        (
            "return SampleDraft(turn_id='other', reward=1.0)",
            "turn_id must be the id of the turn, got 'other'",
        ),
        ("return SampleDraft(turn_id=turn.id, reward=float('nan'))", "rewards must be finite"),
        ("return SampleDraft(turn_id=turn.id, reward=1.0, loss_mask=[1])", "loss_mask must hold a 0 or 1"),
        (
            "return SampleDraft(turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[[1, 2]])",
            "does not end with the sampled ids",
        ),
        ("return turn.score", "raised AttributeError"),
    ],
)
def test_untrainable_samples_are_rejected_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, named: str
) -> None:
    text = f"from openclaw.types import SampleDraft\n\ndef make(turn, judgements):\n    {body}\n"
    assert main([written(tmp_path, text)]) == 1
    assert re.search(named, capsys.readouterr().err)
