"""Everyday questions of another program: their distribution, and definitions of short, detailed and correct
answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from claw_lab.benchmarks.learning import real_model
from openclaw_test.evaluation.plain_questions import (
    COMPLAINTS,
    FACTS,
    THANKS,
    Question,
    beginning,
    drawn,
    is_brief,
    is_detailed,
    read_questions,
)
from openclaw_test.loop.chat_client import Answer, ChatClient

SHORT, LONG = (
    "It is Paris.",
    "It is a large city. It lies on a river. Many people live in it, and more come to see it.",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Files of conversations as in the package, some of which are nested lists or no questions."""
    folder = tmp_path / "chatterbot_corpus" / "data" / "english"
    folder.mkdir(parents=True)
    said = "".join(f'- - "Which is number {n}?"\n  - "The {n}."\n' for n in range(40))
    (folder / "trivia.yml").write_text(
        f"categories: [trivia]\nconversations:\n{said}- - 'A statement.'\n  - 'Yes.'\n"
    )
    (folder / "food.yml").write_text(
        "conversations:\n- - 'What is bread?'\n  - 'Food.'\n- - 'What is bread?'\n  - 'Dough.'\n- 'Loose?'\n"
    )
    return tmp_path


def test_questions_are_read_once_and_only_trivia_have_an_answer(corpus: Path) -> None:
    assert read_questions(corpus, ("food",)) == [Question("What is bread?")]
    facts = read_questions(corpus, (FACTS,))
    assert len(facts) == 40 and facts[7] == Question("Which is number 7?", "The 7.")
    with pytest.raises(ValueError, match="contains no data/english"):
        read_questions(corpus / "elsewhere", ("food",))


def test_topics_of_conversations_are_never_reported(corpus: Path) -> None:
    facts = read_questions(corpus, (FACTS,))
    talk, report = drawn(facts, "talk", 100, 1), drawn(facts, "report", 100, 2)
    assert talk and report and not set(talk) & set(report) and len(talk) + len(report) == 40
    assert drawn(facts, "talk", 5, 1) == drawn(facts, "talk", 5, 1) != drawn(facts, "talk", 5, 3)


def test_brief_detailed_and_correct_replies_are_recognised() -> None:
    assert is_brief(SHORT) and not is_brief(LONG) and not is_brief("") and not is_brief("word " * 41)
    assert is_detailed("word " * 80) and not is_detailed(LONG)
    assert beginning(LONG) == "It is a large city. It lies on a river. " and beginning(SHORT) == SHORT
    right = Question("?", "The Andromeda Galaxy.")
    assert right.is_right("I think it is the andromeda galaxy, really.") and not right.is_right("Andromeda.")
    assert not Question("?", "1").is_right("It was in 1918.") and not Question("?").is_right("anything")


class Served:
    """Replaces a client: returns given answers, and records its requests."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked, self.ended = list(answers), [], 0  # type: ignore[var-annotated]

    async def chat(self, messages: list[dict[str, Any]], **_: object) -> Answer:
        self.asked.append([message["content"] for message in messages])
        return Answer(text=self.answers[min(len(self.asked), len(self.answers)) - 1], finish_reason="stop")

    async def end_session(self, _: str) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("answers", "first", "said"),
    [
        ((SHORT,), True, ["thanks"]),
        ((LONG, SHORT), False, ["complaint", "thanks"]),
        ((LONG, LONG), False, ["complaint", "complaint"]),
    ],
)
async def test_a_brief_person_complains_once_and_thanks_for_short_answers(
    answers: tuple[str, ...], first: bool, said: list[str]
) -> None:
    served = Served(*answers)
    asked = Question("What is bread?")
    assert await real_model.session(cast("ChatClient", served), asked, random.Random(1), 0.0) is first
    assert served.ended == 1 and served.asked[0] == ["What is bread?"]
    spoken = served.asked[-1][2::2]
    assert ["thanks" if text in THANKS else "complaint" for text in spoken] == said
    assert set(spoken) <= {*THANKS, *COMPLAINTS}
