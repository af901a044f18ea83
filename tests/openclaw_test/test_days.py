"""Days of tasks that are checked by programs: a model that learns passes more of them at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from claw_lab.offline.local_loop import ChatModel, LocalLoop, Talk
from claw_lab.offline.methods import METHODS, Setting
from openclaw_test.evaluation import days as program
from openclaw_test.evaluation.days import BadDays, Day, Round, play, read_days, tiny_days

MODEL = Path(__file__).parents[2] / "openclaw-test" / "tiny_claw" / "model"
SAYS_LONG = ("{python}", "-c", "import sys; sys.exit(len(sys.stdin.read()) < 5)")


class Learner:
    """A person who writes briefly until asked for more."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.knows = False

    def say(self, session: str, text: str) -> str:
        self.messages.append((session, text))
        self.knows |= text == "longer"
        return "a long one" if self.knows else "no"

    def end(self, session: str) -> None:
        self.ended.append(session)


def test_rounds_are_checked_by_their_programs_and_get_feedback(tmp_path: Path) -> None:
    one = {"task": "write", "check": list(SAYS_LONG), "feedback": "longer"}
    file = tmp_path / "days.json"
    file.write_text(json.dumps({"days": [{"rounds": [one, one]}, {"name": "second", "rounds": [one]}]}))
    agent = Learner()
    assert list(play(read_days(file), agent, "s", 0)) == [
        {"day": "day 1", "rounds": 2, "passed": 1, "after_feedback": 1},
        {"day": "second", "rounds": 1, "passed": 1, "after_feedback": 0},
    ]
    assert [text for session, text in agent.messages if session == "s-1-1"][:2] == ["write", "longer"]
    assert [len([1 for session, _ in agent.messages if session == name]) for name in agent.ended] == [3, 2, 2]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("nonsense", "not JSON"),
        ("{}", "contains no days"),
        ('{"days": [{"rounds": []}]}', "day 1 has no rounds"),
        ('{"days": [{"rounds": [{"task": "t", "feedback": "f", "check": []}]}]}', "round 1 of day 1 needs"),
        ('{"days": [{"rounds": [{"task": "t", "feedback": "f", "check": "sh"}]}]}', "round 1 of day 1 needs"),
    ],
)
def test_an_invalid_task_file_is_reported_in_one_line(
    tmp_path: Path, content: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "days.json"
    file.write_text(content)
    assert program.main(["play", str(file)]) == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("check", [("/no/such/program",), ("{python}", "-c", "raise SystemExit(7)")])
def test_an_inconclusive_check_is_not_a_failed_round(check: tuple[str, ...]) -> None:
    with pytest.raises(BadDays, match="the check"):
        Round("t", check, "f").passes("reply")


@pytest.fixture
def loop() -> Iterator[LocalLoop]:
    torch.set_num_threads(1)
    found = LocalLoop(ChatModel(str(MODEL)), Setting(METHODS["topk_select"]), 5)
    yield found
    found.close()


class LocalAgent:
    """tiny-claw, which learns from each message before the next one."""

    def __init__(self, loop: LocalLoop) -> None:
        self.loop = loop
        self.talks: dict[str, Talk] = {}

    def say(self, session: str, text: str) -> str:
        talk = self.talks.setdefault(session, Talk([], session, person="ada"))
        self.loop.follow(talk, text)
        self.loop.learn()
        return self.loop.say([talk])[0]

    def end(self, session: str) -> None:
        self.loop.end(self.talks[session])
        self.loop.learn()


def test_a_tiny_model_passes_more_rounds_at_once_from_day_to_day(loop: LocalLoop, tmp_path: Path) -> None:
    file = tmp_path / "days.json"
    assert program.main(["make", str(file), "--days", "3", "--rounds", "8", "--seed", "1"]) == 0
    assert json.loads(file.read_text()) == tiny_days(1, 3, 8)
    wanted: list[Any] = [one["check"][4:] for day in tiny_days(1, 3, 8)["days"] for one in day["rounds"][:1]]
    assert wanted == [["right", "prose"], ["right", "prose", "warm"], ["right", "prose", "warm"]]
    program.main(["make", str(file), "--days", "1", "--rounds", "16", "--seed", "1"])
    (rounds,) = [day.rounds for day in read_days(file)]
    days = [Day(f"day {at}", rounds[8 * at : 8 * at + 8]) for at in range(2)]
    first, last = play(days, LocalAgent(loop), "d", 0)
    assert first["after_feedback"] > 0 and last["passed"] > first["passed"] and last["passed"] >= 7, (
        first,
        last,
    )
