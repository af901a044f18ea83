"""The rules judge on labelled next states in English and Chinese; data/README.md says how they were made."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from claw_lab import environment
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.rules.languages import language_of

DATA = Path(__file__).parent / "data"
AGREEMENT = [sys.executable, "-m", "claw_lab.benchmarks.learning.judge_agreement"]


@pytest.fixture(scope="module")
def agreement() -> dict[str, Any]:
    """What the benchmark prints."""
    shown = subprocess.run(AGREEMENT, env=environment(), capture_output=True, text=True, check=True)
    lists: dict[str, Any] = orjson.loads(shown.stdout)["lists"]
    return lists


def test_the_rules_agree_with_clear_labels_written_before_them(agreement: dict[str, Any]) -> None:
    shares = agreement["next_states"]
    assert shares["lines"] >= 300 and shares["failed"] == 0
    assert min(shares["clear"], shares["clear_en"]) >= 0.9
    # A wider net here invents signs elsewhere, which is worse than saying nothing
    assert shares["clear_zh"] >= 0.88


def test_wrong_votes_of_the_rules_are_mostly_neutral(agreement: dict[str, Any]) -> None:
    assert agreement["next_states"]["opposite"] <= 0.01
    assert agreement["after_the_rules"]["opposite"] <= 0.01


def test_held_out_recorded_states_get_few_invented_and_wrong_signs() -> None:
    command = [*AGREEMENT, "--recorded"]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    held_out = orjson.loads(shown.stdout)["lists"]["held_out"]
    assert held_out["clear"]["right"] >= 0.78 and held_out["clear"]["opposite"] <= 0.03
    assert (
        held_out["kinds"]["person-new-request"]["invented"] <= 0.03 and held_out["hints_of_label_0"] <= 0.03
    )
    assert held_out["failing_commands_judged_good"] <= 0.02 * held_out["failing_commands"]


def test_labels_are_complete_and_lists_are_disjoint() -> None:
    lists = {
        path.stem: [orjson.loads(line) for line in path.read_bytes().splitlines()]
        for path in DATA.glob("*.jsonl")
    }
    fields = {"id", "language", "clear", "label", "asked", "response", "next"}
    for rows in lists.values():
        assert all(set(row) == fields and row["label"] in (-1, 0, 1) for row in rows)
        assert len({row["id"] for row in rows}) == len(rows)
    said = {
        name: {row["next"][-1]["content"] for row in rows if len(row["next"][-1]["content"]) > 12}
        for name, rows in lists.items()
    }
    assert not said["next_states"] & said["tuning"]


def score(text: str, asked: str = "写一首诗。", role: str = "user") -> int | None:
    question = JudgeQuestion(
        response="春眠不觉晓。",
        next_state=[{"role": role, "content": text}],
        role="user" if role == "user" else "tool",
        messages=[{"role": "user", "content": asked}],
    )
    return vote_by_rules(question).score


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("没问题,谢谢!", 1),
        ("有问题,重写。", -1),
        ("不错!下一题:8 乘 7 是多少?", 1),
        ("不对。再来一题:8 乘 7 是多少?", -1),
        ("小明丢了 3 个苹果,坏了 2 个,还剩几个?", 0),
        ("谢谢,但是太长了。", -1),
        ("Nice! 谢谢", 1),
        ("这个 response 不对", -1),
        ("", 0),
    ],
)
def test_chinese_feedback_is_scored_correctly(text: str, expected: int) -> None:
    assert score(text) == expected


def test_the_same_chinese_request_again_is_a_complaint_unless_its_numbers_changed() -> None:
    asked = "请帮我写一首关于春天的诗"
    assert score("写一首关于春天的诗吧", asked) == -1
    assert score("小明有 3 个苹果和 4 个梨", "小明有 5 个苹果和 6 个梨") == 0


def test_a_chinese_tool_report_is_judged_and_a_document_is_not() -> None:
    assert score("删除失败:文件被占用", role="tool") == -1
    assert score("测试通过:12,失败:0", role="tool") == 1
    assert score("# 常见错误\n\n1. 登录失败\n2. 超时", role="tool") == 0


@pytest.mark.parametrize(
    "text", ["不" * 50_000, "好," * 50_000, "1个" * 50_000, "“" * 50_001, "错误:" * 20_000]
)
def test_a_huge_chinese_message_is_judged_quickly(text: str) -> None:
    started = time.monotonic()
    score(text, asked=text[:-3])
    score(text, role="tool")
    assert time.monotonic() - started < 1.0


def test_english_is_not_taken_for_chinese() -> None:
    assert language_of("好的 thanks") == "zh" and language_of("thanks, 2x faster — naïve café") == "en"
    assert language_of("太长了", "How far is the moon?") == "zh"
    assert language_of("長大", "月はどのくらい遠いの?") == "ja"
