"""The head of the sentence model is adapted to what a person rates."""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from openclaw.errors import ConfigError
from openclaw.judge import settings as judge_settings
from openclaw.judge.backends.base import make_backend
from openclaw.judge.learned import __main__ as program
from openclaw.judge.learned.adapting import change, fold_of, measured
from openclaw.judge.learned.examples import (
    MODEL_WEIGHT,
    PERSON_WEIGHT,
    Example,
    stored_examples,
    target_of,
)
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.sentences import encoder as sentence_encoder
from openclaw.judge.sentences.encoder import SIZE, Encoder
from openclaw.judge.sentences.features import Remark, features_of
from openclaw.judge.sentences.head import Head
from openclaw.judge.settings import JudgeSettings
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, Turn, Vote

Answer = Callable[[str], Turn]
CHEERS = ("Groovy, ta!", "Groovy stuff.", "That is groovy.", "Groovy!")
"""Praise that neither the rules nor the shipped head know."""


class WordEncoder(Encoder):
    """Embeds a text as the sum of a random direction for each of its words."""

    def embeddings(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = np.stack([self._of(text) for text in texts])
        return found

    def _of(self, text: str) -> npt.NDArray[np.float32]:
        words = "".join(sign if sign.isalnum() else " " for sign in text.lower()).split() or [""]
        rows = [np.random.default_rng(zlib.crc32(word.encode())).normal(size=SIZE) for word in words]
        total = np.sum(rows, axis=0)
        found: npt.NDArray[np.float32] = (total / np.linalg.norm(total)).astype(np.float32)
        return found


def example(text: str, label: int, weight: float = PERSON_WEIGHT, group: str = "") -> Example:
    rules = Vote(score=0, text="no feedback")
    return Example(
        Remark(text=text, request="Tell me.", answer="It is 7.", rules=rules), label, weight, group or text
    )


def some_talk() -> list[Example]:
    rows = [
        *((f"{CHEERS[n % 4]} {n}", 1) for n in range(16)),
        *((f"And now the {n} of spades", 0) for n in range(14)),
    ]
    return [example(text, label, group=f"session {n}") for n, (text, label) in enumerate(rows)]


def features_for(examples: Sequence[Example]) -> npt.NDArray[np.float32]:
    return np.stack([features_of(one.remark, WordEncoder()) for one in examples])


def likely(head: Head, text: str, added: npt.NDArray[np.float32] | float = 0.0) -> float:
    """The probability of thanks."""
    features = features_for([example(text, 0)])[0]
    powers = head.powers(features) + features @ np.broadcast_to(added, head._weights.shape)
    return head.of_powers(powers, powers).high


def test_ratings_change_similar_messages_and_few_others() -> None:
    head, talk = Head(WordEncoder()), some_talk()
    features = features_for(talk)
    added = change(features, head.powers(features), talk)
    assert added.shape == head._weights.shape
    assert likely(head, "Groovy, ta! 99", added) > 0.8 > likely(head, "Groovy, ta! 99")
    for other in ("Quinoa takes twenty minutes", "Who won the match?", "too long"):
        assert abs(likely(head, other, added) - likely(head, other)) < 0.05
    assert np.array_equal(added, change(features, head.powers(features), talk)), "the same each time"


def test_a_persons_rating_outweighs_a_few_votes() -> None:
    head = Head(WordEncoder())
    votes = [example("That looks like AI.", -1, MODEL_WEIGHT, f"v{n}") for n in range(2)]
    rated = [*votes, example("That looks like AI.", 1, PERSON_WEIGHT, "rated")]

    def thanks(examples: list[Example]) -> float:
        features = features_for(examples)
        return likely(head, "That looks like AI.", change(features, head.powers(features), examples))

    assert thanks(votes) < 0.2 < 0.5 < thanks(rated)


def test_an_adapted_head_is_measured_on_other_sessions() -> None:
    talk = some_talk()
    found: Any = measured(Head(WordEncoder()), features_for(talk), features_for(talk), talk)
    assert (found["examples"], found["sessions"]) == (30, 30)
    assert found["adapted"]["right"] > found["shipped"]["right"] and found["adapted"]["wrong_sign"] == 0
    assert len({fold_of(example(text, 0, group="one")) for text in CHEERS}) == 1
    assert len({fold_of(one) for one in talk}) == 5


@pytest.mark.parametrize("number", [0, 1, 19])
def test_too_few_ratings_are_rejected(number: int) -> None:
    few = some_talk()[:number]
    features = features_for(few) if few else np.zeros((0, 1), dtype=np.float32)
    with pytest.raises(ConfigError, match=f"{number} rated messages from {number} sessions are too few"):
        measured(Head(WordEncoder()), features, features, few)


def eval_of(judge: str, *scores: int | None) -> Judgement:
    return Judgement(kind="eval", score=0.0, votes=[Vote(score=score) for score in scores], judge=judge)


def test_a_persons_rating_outranks_votes_and_votes_of_the_rules_are_not_used() -> None:
    assert target_of([eval_of("openai:x", 1, 1, -1, None)]) == (1, MODEL_WEIGHT)
    assert target_of([eval_of("openai:x", 1), eval_of("user", -1)]) == (-1, PERSON_WEIGHT)
    assert target_of([eval_of("user", -1), eval_of("user", 1)]) == (1, PERSON_WEIGHT)
    for name in ("rules", "rules+sentences", "rules+reader"):
        assert target_of([eval_of(name, 1)]) is None
    assert target_of([]) is None


def test_stored_ratings_become_examples(store: RolloutStore, answer: Answer) -> None:
    by_rules, voted, rated, tool = (
        answer("Wrong."),
        answer("That looks like AI."),
        answer("Groovy."),
        answer(""),
    )
    assert store.judgements.finish(by_rules.id, [eval_of("rules", -1)], Drop("made up"))
    assert store.judgements.finish(voted.id, [eval_of("openai:x", -1)], Drop("made up"))
    for turn in (rated, tool):
        assert store.feedback.record(completion_id=turn.completion_id, score=1.0)
        assert store.judgements.finish(turn.id, store.feedback.judgements_of(turn.id), Drop("made up"))
    answer("not judged yet")
    found = [(one.remark.text, one.label, one.weight) for one in stored_examples(store, most=10)]
    assert found == [("That looks like AI.", -1, MODEL_WEIGHT), ("Groovy.", 1, PERSON_WEIGHT)]


def labelled(path: Path) -> Path:
    rows = [
        {"response": "7", "next_state": one.remark.text, "label": one.label, "group": one.group}
        for one in some_talk()
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence model is there, and embeds words."""
    monkeypatch.setattr(program, "is_installed", lambda: True)
    monkeypatch.setattr(judge_settings, "is_installed", lambda: True)
    monkeypatch.setattr(program, "Encoder", WordEncoder)
    monkeypatch.setattr(sentence_encoder, "Encoder", WordEncoder)


@pytest.mark.usefixtures("words")
async def test_the_command_adapts_the_head_and_the_judge_loads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, lines = tmp_path / "head.npz", labelled(tmp_path / "lines.jsonl")
    assert program.main(["--labelled", str(lines), "--output", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "its weights are made of people's words"
    printed = json.loads(capsys.readouterr().out)
    assert printed["examples"] == 30 and sorted(os.listdir(tmp_path)) == ["head.npz", "lines.jsonl"]
    asked = JudgeQuestion(
        response="7", next_state=[{"role": "user", "content": "Groovy, ta! 5"}], role="user", messages=[]
    )
    scores = []
    for settings in (
        JudgeSettings(judge_embeddings="on"),
        JudgeSettings(judge_embeddings="on", judge_head=str(file)),
    ):
        backend = make_backend(settings, JudgeMetrics("rules"))
        scores.append([vote.score for vote in await backend.eval_votes(asked, 2)])
        await backend.close()
    assert scores == [[0, 0], [1, 1]]


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize("content", [None, b"", b"not a head", b"PK\x03\x04 broken"])
def test_a_file_of_another_format_is_rejected(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "head.npz"
    if content is not None:
        file.write_bytes(content)
    settings = JudgeSettings(judge_embeddings="on", judge_head=str(file))
    with pytest.raises(ConfigError, match=r"--judge-head .*openclaw\.judge\.learned"):
        make_backend(settings, JudgeMetrics("rules"))


def test_a_head_without_effect_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="set --judge-embeddings on"):
        JudgeSettings(judge_head="head.npz")
    monkeypatch.setattr(judge_settings, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match="need a package"):
        JudgeSettings(judge_head="head.npz", judge_embeddings="auto")
    with pytest.raises(ConfigError, match="only with --judge-backend rules"):
        JudgeSettings(
            judge_head="head.npz",
            judge_embeddings="auto",
            judge_backend="openai",
            judge_url="http://a",
            judge_model="m",
        )


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"response": "7", "next_state": "Thanks!"}, "line 1"),
        ({"response": "7", "next_state": "Thanks!", "label": 2}, "label is 2; write -1, 0 or 1"),
        ({"next_state": "Thanks!", "label": 1}, "response: Field required"),
    ],
)
def test_an_invalid_line_is_rejected_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: dict[str, Any], message: str
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(json.dumps(line))
    assert program.main(["--labelled", str(file), "--output", str(tmp_path / "head.npz")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "head.npz").exists()
