"""A judge that is learned from stored votes and from what people said of the judge."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import ConfigError
from openclaw.judge.backends.base import make_backend
from openclaw.judge.learned.__main__ import main
from openclaw.judge.learned.classifier import (
    CLASSES,
    Example,
    decided,
    fit,
    fit_temperature,
    logits,
    softmax,
)
from openclaw.judge.learned.examples import PERSON_WEIGHT, stored_examples, target_of
from openclaw.judge.learned.features import features_of
from openclaw.judge.learned.judge_file import JudgeFile, learn
from openclaw.judge.learned.measured import calibration_error, choose_threshold, fold_of
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.settings import JudgeSettings
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, Turn, Vote

Answer = Callable[[str], Turn]
CHEERS = ("Groovy, ta!", "Groovy stuff.", "That is groovy.", "Groovy!")
"""Praise that the rules do not know."""


def question(said: str, response: str = "It is 7.") -> JudgeQuestion:
    return JudgeQuestion(
        response=response,
        next_state=[{"role": "user", "content": said}],
        role="user",
        messages=[{"role": "user", "content": "What is 3 + 4?"}],
    )


def example(said: str, label: int, weight: float = 1.0, group: str = "") -> Example:
    rules, features = features_of(question(said))
    low, none, high = (float(label == name) for name in CLASSES)
    return Example(rules, features, (low, none, high), weight, group or said)


def judged_by(judge: JudgeFile, said: str) -> int:
    rules, features = features_of(question(said))
    return decided(softmax(logits(judge.rows, rules, features), judge.temperature), judge.threshold)


def some_talk() -> list[Example]:
    """Forty sessions: complaints and requests that the rules know, and praise that they do not."""
    rows = [
        *((f"{CHEERS[n % 4]} {n}", 1) for n in range(16)),
        *((f"That is wrong, it is {n}.", -1) for n in range(12)),
        *((f"What is {n} times {n}?", 0) for n in range(12)),
    ]
    return [example(said, label, group=f"session {n}") for n, (said, label) in enumerate(rows)]


def test_without_anything_learned_it_judges_as_the_rules_do() -> None:
    for said in ("Thank you, perfect!", "That is wrong.", "What is 5 + 5?", CHEERS[0]):
        rules, features = features_of(question(said))
        assert rules == vote_by_rules(question(said)).score
        assert decided(softmax(logits({}, rules, features)), 0.5) == rules


def test_words_that_the_rules_do_not_know_are_learned_and_others_stay() -> None:
    judge = learn(some_talk(), most_wrong=0.02)
    assert vote_by_rules(question("Groovy, thx 99")).score == 0 or judged_by(judge, "Groovy, ta! 99") == 1
    assert [judged_by(judge, said) for said in ("Groovy, ta! 99", "That is wrong, it is 8.")] == [1, -1]
    assert judged_by(judge, "What is 31 times 7?") == 0
    assert judge.measured["learned"]["right"] > judge.measured["rules"]["right"]


def test_what_a_person_said_of_the_judge_outweighs_a_few_votes() -> None:
    words = "That looks like AI."
    votes = [example(words, -1, group=f"v{n}") for n in range(2)]
    told = [example(words, 1, PERSON_WEIGHT, group="told")]
    rules, features = features_of(question(words))

    def good(examples: list[Example]) -> float:
        return softmax(logits(fit(examples), rules, features))[2]

    assert good(votes) < 0.2 < 0.5 < good(votes + told)


def test_the_same_examples_give_the_same_judge() -> None:
    assert learn(some_talk(), 0.02) == learn(some_talk(), 0.02)


def test_a_temperature_makes_overconfident_logits_as_likely_as_they_are_right() -> None:
    found = [[0.0, 0.0, 8.0]] * 10
    targets = [(0.0, 0.0, 1.0)] * 7 + [(0.0, 1.0, 0.0)] * 3
    temperature = fit_temperature(found, targets)
    assert temperature == pytest.approx(5.0)
    given = [softmax([0.0, 0.0, 1.0], fit_temperature([[0.0, 0.0, 1.0]] * 10, targets))] * 10
    examples = [Example(0, {}, target) for target in targets]
    assert calibration_error(examples, given) == pytest.approx(0, abs=0.02)
    assert math.isclose(sum(given[0]), 1)


def test_the_threshold_is_raised_until_hardly_any_sign_is_wrong() -> None:
    right = [Example(0, {}, (0.0, 0.0, 1.0))] * 98
    wrong = [Example(0, {}, (1.0, 0.0, 0.0))] * 2
    sure, unsure = [0.05, 0.05, 0.9], [0.2, 0.2, 0.6]
    assert choose_threshold(right + wrong, [sure] * 98 + [unsure] * 2, 0.0) >= 0.6
    assert choose_threshold(right + wrong, [sure] * 98 + [unsure] * 2, 0.05) < 0.6
    never = choose_threshold(wrong, [[0.0, 0.0, 1.0]] * 2, 0.0)
    assert [decided(one, never) for one in ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0])] == [0, 0]


def test_a_session_is_never_on_both_sides_of_a_split() -> None:
    assert len({fold_of(example(said, 0, group="one")) for said in CHEERS}) == 1
    assert len({fold_of(one) for one in some_talk()}) == 5


def eval_of(judge: str, *scores: int | None) -> Judgement:
    return Judgement(kind="eval", score=0.0, votes=[Vote(score=score) for score in scores], judge=judge)


def test_votes_become_shares_a_person_outranks_them_and_its_own_votes_teach_nothing() -> None:
    assert target_of([eval_of("openai:x", 1, 1, -1, None)]) == ((1 / 3, 0.0, 2 / 3), 1.0)
    assert target_of([eval_of("openai:x", 1), eval_of("user", -1)]) == ((1.0, 0.0, 0.0), PERSON_WEIGHT)
    assert target_of([eval_of("learned", 1)]) is None
    assert target_of([]) is None


def told(store: RolloutStore, turn: Turn, score: int) -> None:
    assert store.judgements.finish(turn.id, [eval_of("rules", score)], Drop("made up"))


def test_stored_turns_are_learned_from_with_what_people_said_of_them(
    store: RolloutStore, answer: Answer
) -> None:
    told(store, answer("That looks like AI."), -1)
    overruled = answer("Groovy.")
    assert store.feedback.record(completion_id=overruled.completion_id, score=1.0)
    assert store.judgements.finish(overruled.id, store.feedback.judgements_of(overruled.id), Drop("made up"))
    answer("nobody has judged this one")
    voted, said = stored_examples(store, most=10)
    assert (voted.label, said.label) == (-1, 1)
    assert said.weight == PERSON_WEIGHT > voted.weight
    assert [one.label for one in stored_examples(store, most=1)] == [1]


def labelled(path: Path) -> Path:
    rows = [
        *(
            {"response": "7", "next_state": f"{CHEERS[n % 4]} {n}", "label": 1, "group": f"g{n}"}
            for n in range(16)
        ),
        *({"response": "7", "next_state": f"Wrong: {n}.", "label": -1, "group": f"w{n}"} for n in range(16)),
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


async def test_a_judge_is_learned_by_a_command_and_judges_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, lines = tmp_path / "judge.json", labelled(tmp_path / "lines.jsonl")
    assert main(["--labelled", str(lines), "--output", str(file)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["examples"] == 32
    assert sorted(os.listdir(tmp_path)) == ["judge.json", "lines.jsonl"]
    settings = JudgeSettings(judge_backend="learned", judge_learned_file=str(file))
    backend = make_backend(settings, JudgeMetrics("learned"))
    assert (backend.name, backend.prompt_name) == ("learned", printed["judge"])
    votes = await backend.eval_votes(question("Groovy, ta! 5"), 3)
    assert [vote.score for vote in votes] == [1, 1, 1]
    assert (await backend.hint_votes(question("Groovy, ta! 5"), 1))[0].score == -1
    complaint = "That looks like AI. Please write it in normal sentences."
    [hint] = await backend.hint_votes(question(complaint), 1)
    assert hint.hint == complaint
    await backend.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"response": "7", "next_state": "Thanks!"}, "line 1"),
        ({"response": "7", "next_state": "Thanks!", "label": 2}, "label is 2; write -1, 0 or 1"),
        ({"next_state": "Thanks!", "label": 1}, "response: Field required"),
    ],
)
def test_a_line_without_what_is_needed_is_refused_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: dict[str, Any], message: str
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(json.dumps(line))
    assert main(["--labelled", str(file), "--output", str(tmp_path / "judge.json")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "judge.json").exists()


def test_too_little_to_learn_from_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 judged turns of 1 sessions are too few"):
        learn([example("Thanks!", 1)], 0.02)


@pytest.mark.parametrize("content", ["{}", "not JSON", '{"format": 2}'])
def test_a_file_that_is_no_judge_is_refused_before_anything_is_judged(tmp_path: Path, content: str) -> None:
    file = tmp_path / "judge.json"
    file.write_text(content)
    settings = JudgeSettings(judge_backend="learned", judge_learned_file=str(file))
    with pytest.raises(ConfigError, match="is no learned judge"):
        make_backend(settings, JudgeMetrics("learned"))
    with pytest.raises(ConfigError, match="needs --judge-learned-file"):
        JudgeSettings(judge_backend="learned")
