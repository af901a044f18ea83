"""The simulated person of the demo, and the measured preference."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from openclaw_test.loop.chat_client import Answer
from openclaw_test.loop.demo import parse
from openclaw_test.loop.measure import look
from openclaw_test.people.tastes import BY_NAME
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import random_problem


class PlainWriter:
    """Answers the problems of `look` with seed 5 in plain sentences, in order."""

    def __init__(self) -> None:
        self.rng = random.Random("look 5")

    async def chat(self, messages: object, **body: object) -> Answer:
        problem = random_problem(self.rng, "held-out")
        return Answer(write_reply(random.Random(0), problem, Style("prose"), thinking=False))


@pytest.mark.parametrize(("person", "content"), [("student", 1.0), ("teacher", 0.0), ("dasher", 0.0)])
def test_the_measured_preference_is_that_of_the_simulated_person(person: str, content: float) -> None:
    client: Any = PlainWriter()
    seen = asyncio.run(look(client, n=20, seed=5, concurrency=1, taste=BY_NAME[person]))
    assert seen.preference == content


def test_the_demo_knows_four_people_and_the_student_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse([]).person == "student"
    assert parse(["--person", "TA"]).person == "TA"
    with pytest.raises(SystemExit):
        parse(["--person", "cat"])
    assert "student" in capsys.readouterr().err
