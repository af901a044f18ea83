"""What the rules know no phrase for is read by the served model, if it can read and is sure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openclaw.common.plain_sentences import Pole, plain_sentences, pole_of_plain_sentence
from openclaw.errors import ConfigError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.reader import reader as reader_module
from openclaw.judge.reader.channel import SURE, kinds, read, read_both
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.settings import SERVED, JudgeSettings
from openclaw.types import Vote
from tests.fakes.scripted_engine import FakeEngine

LONG = "The tide comes in twice a day because the moon pulls at the sea. " * 6
LIST = "You need:\n- flour\n- eggs\n- milk\n" + "Stir it well. " * 20
SAID = {
    "my thumb hurts from scrolling": "short",
    "my coach would need bifocals and a ruler": "prose",
    "straight to business I see": "greet",
    "my kettle thinks otherwise": "wrong",
    "the cat and I now sleep at night": "thanks",
    "and on sundays": "next",
}
"""Sentences in which the rules find no sign, and what the model of these tests makes of them."""


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    started = FakeEngine().start()
    yield started
    started.stop()


@pytest.fixture
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer(model)


@pytest.fixture
def judged(engine: FakeEngine, model: Path, tokenizer: Tokenizer) -> Callable[..., tuple[Vote, Vote]]:
    """(score vote, hint vote) of what a person writes back, by a model that reads as `SAID` says."""
    known = (
        SAID
        | {"That is too long for me.": "short"}
        | {text: kind.name for kind in kinds().values() for text in kind.checks}
    )

    def score(ids: list[int], start: int) -> float:
        context, sentence = tokenizer.decode(ids[: start + 1]), tokenizer.decode(ids[start + 1 :]).strip()
        here = next(name for name, kind in kinds().items() if kind.when in context)
        return -1.0 if known.get(sentence) == here else -9.0

    def ask(
        said: str, answer: str = LONG, score: Callable[[list[int], int], float] = score
    ) -> tuple[Vote, Vote]:
        engine.score = score
        question = JudgeQuestion(
            response=answer, next_state=[{"role": "user", "content": said}], role="user", messages=[]
        )

        async def both() -> tuple[Vote, Vote]:
            settings = JudgeSettings(judge_reader_url=(engine.url,), judge_reader_model=str(model))
            backend = make_backend(settings, JudgeMetrics("rules"))
            votes = await asyncio.gather(backend.eval_votes(question, 1), backend.hint_votes(question, 1))
            await backend.close()
            return votes[0][0], votes[1][0]

        return asyncio.run(both())

    return ask


@pytest.mark.parametrize(
    ("said", "answer", "score", "pole"),
    [
        ("my thumb hurts from scrolling", LONG, -1, "short"),
        ("my coach would need bifocals and a ruler", LIST, -1, "prose"),
        ("straight to business I see", LONG, -1, "greet"),
        ("my kettle thinks otherwise", LONG, -1, None),
        ("the cat and I now sleep at night", LONG, 1, None),
        ("and on sundays", LONG, 0, None),
        ("my coach would need bifocals and a ruler", LONG, 0, None),
        ("straight to business I see", "Hello! " + LONG, 0, None),
        ("my thumb hurts from scrolling", "Twice a day.", 0, None),
        ("I collect stamps from Peru", LONG, 0, None),
    ],
)
def test_the_models_class_is_used_if_the_rules_find_no_sign_and_it_fits_the_answer(
    judged: Callable[..., tuple[Vote, Vote]], said: str, answer: str, score: int, pole: Pole | None
) -> None:
    silent = JudgeQuestion(
        response=answer, next_state=[{"role": "user", "content": said}], role="user", messages=[]
    )
    assert vote_by_rules(silent).score == 0
    vote, hint = judged(said, answer)
    assert vote.score == score
    assert (pole_of_plain_sentence(hint.hint) if hint.hint else None) == pole
    assert pole is None or hint.hint == plain_sentences(pole, "en")[0]
    assert score == 0 or "sure)" in vote.text


def test_a_hint_found_by_both_model_and_rules_contains_both_sentences(
    judged: Callable[..., tuple[Vote, Vote]],
) -> None:
    vote, hint = judged("That is too long for me.")
    assert vote.score == -1 and hint.hint == f"{plain_sentences('short', 'en')[0]} That is too long for me."


@pytest.mark.parametrize(
    "said",
    ["Thanks, perfect!", "Das ist mir alles viel zu viel Text hier.", "这个 my thumb 疼", "", "w " * 300],
)
def test_known_praise_other_languages_and_long_texts_are_not_classified(
    judged: Callable[..., tuple[Vote, Vote]], said: str
) -> None:
    asked: list[int] = []

    def score(ids: list[int], start: int) -> float:
        asked.append(start)
        return -1.0

    judged(said, LONG, score)
    assert asked == []


def test_a_model_that_fails_the_check_examples_is_not_used(
    judged: Callable[..., tuple[Vote, Vote]],
) -> None:
    asked: list[int] = []

    def score(ids: list[int], start: int) -> float:
        asked.append(start)
        return -float(start)

    vote, hint = judged("my thumb hurts from scrolling", LONG, score)
    checks = sum(len(kind.checks) for kind in kinds().values())
    assert vote.score == 0 and not hint.hint and len(asked) == checks * len(kinds())


def test_without_an_engine_the_rules_judge_alone(
    judged: Callable[..., tuple[Vote, Vote]], engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "READY_SECONDS", 0.2)
    engine.stop()
    vote, hint = judged("my thumb hurts from scrolling")
    assert vote.score == 0 and not hint.hint


def test_a_slow_engine_does_not_delay_judgements(
    judged: Callable[..., tuple[Vote, Vote]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(ids: list[int], start: int) -> float:
        time.sleep(0.05)
        return -1.0

    monkeypatch.setattr(reader_module, "READING_SECONDS", 0.2)
    began = time.monotonic()
    vote, hint = judged("my thumb hurts from scrolling", LONG, slow)
    assert vote.score == 0 and not hint.hint and time.monotonic() - began < 2


def test_a_class_with_a_narrow_lead_is_not_returned() -> None:
    scores = dict.fromkeys(kinds(), -9.0) | {"short": -5.0, "tone": -5.5}
    assert read(scores, LONG).kind.name == "short" and read(scores, LONG).share < SURE


def test_two_uncertain_complaints_about_the_same_aspect_are_certain_together() -> None:
    unsure = dict.fromkeys(kinds(), -9.0) | {"short": -5.0, "tone": -7.0}
    thanks = dict.fromkeys(kinds(), -9.0) | {"thanks": -5.0}
    assert not read(unsure, LONG).is_sure and read_both(unsure, unsure, LONG).is_sure
    assert read_both(thanks, unsure, LONG) == read(unsure, LONG)
    assert read_both(unsure, thanks, LONG) == read(thanks, LONG)


def test_invalid_reader_settings_are_rejected(model: Path) -> None:
    with pytest.raises(ConfigError, match="--judge-reader-model"):
        JudgeSettings(judge_reader_url=("http://127.0.0.1:1",))
    with pytest.raises(ConfigError, match="works only with --judge-backend rules"):
        JudgeSettings(
            judge_backend="openai", judge_url="http://a", judge_model="m", judge_reader_url=(SERVED,)
        )
    with pytest.raises(ConfigError, match="training run"):
        make_backend(JudgeSettings(judge_reader_url=(SERVED,)), JudgeMetrics("rules"))
