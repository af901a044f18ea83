"""Every line of the shipped texts is whole, said once, and places its wish."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from openclaw.dreaming import anchors, texts
from openclaw.dreaming.plans import HELD_OUT
from openclaw.dreaming.themes import alike, pole_of, same_pole, themes_of


def test_prompts_are_unique_and_facts_have_answers() -> None:
    found = texts.prompts()
    assert len({one.id for one in found}) == len({one.text for one in found}) == len(found) >= 300
    for one in found:
        assert one.id and one.kind and len(one.language) == 2 and one.text == one.text.strip() != ""
        assert bool(one.answers) == (one.kind == texts.FACT) and all(one.answers)
    assert Counter(one.kind for one in found)[texts.FACT] >= 24
    assert len({one.language for one in found}) >= 10
    assert len(anchors.dreamt_prompts()) > 4 * HELD_OUT


def test_every_wish_has_a_place_and_complaints_include_their_answer() -> None:
    found = texts.wishes()
    assert (
        len({one.id for one in found}) == len({(one.place, one.text) for one in found}) == len(found) >= 200
    )
    for one in found:
        assert one.theme and one.pole and len(one.language) == 2 and one.text == one.text.strip() != ""
        assert one.place in ("question", "system", "complaint")
        assert bool(one.earlier) == (one.place == "complaint")
    poles = Counter((one.theme, one.pole) for one in found)
    assert poles["length", "long"] >= 20 and poles["length", "short"] >= 20 and min(poles.values()) >= 2


def test_every_frame_has_one_place_for_the_question_and_a_pole_of_the_wishes() -> None:
    frames, wishes = texts.frames(), texts.wishes()
    assert len({one.text for one in frames}) == len(frames) >= 100
    assert not {one.id for one in frames} & {one.id for one in wishes}
    poles = {(one.theme, one.pole) for one in wishes}
    for one in frames:
        assert sum(one.text.count(slot) for slot in texts.QUESTION) == 1
        assert (one.theme, one.pole) in poles and one.place == "question" and not one.earlier


def test_every_prompt_of_another_kind_ends_with_a_user_message() -> None:
    found = texts.others()
    assert len({one.id for one in found}) == len(found) >= 20
    for one in found:
        assert one.kind and one.messages[-1]["role"] == "user"
        assert all(message["content"] and message.keys() == {"role", "content"} for message in one.messages)


@pytest.mark.parametrize(
    ("wish", "theme"),
    [
        ("Shorter, please.", "length"),
        ("That was far too long for me.", "length"),
        ("Please write plain prose, no lists.", "layout"),
        ("Greet me before you answer.", "greeting"),
        ("Put the summary at the top.", "order"),
        ("Answer in German.", "language"),
        ("Kürzer bitte.", "length"),
    ],
)
def test_a_wish_has_the_theme_of_its_words(wish: str, theme: str) -> None:
    weights = themes_of(wish)
    assert max(weights, key=lambda one: weights[one]) == theme and sum(weights.values()) == pytest.approx(1)


def test_wordings_of_one_request_are_similar_and_different_requests_are_not() -> None:
    assert not themes_of("Use metric units.")
    assert alike("Shorter, please.", "Answer in one or two sentences.")
    assert not alike("Shorter, please.", "Greet me first.")
    assert alike("Use metric units.", "Kilometres, not miles") and not alike("Shorter", "Use metric units.")


def test_a_newer_wish_of_the_same_kind_with_another_pole_is_detected() -> None:
    assert same_pole("Shorter, please.", "Keep it short and brief.")
    assert not same_pole("Shorter, please.", "Give me every detail, at length.")
    assert not same_pole("No lists, please.", "Use bullet points.")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Shorter, please.", "en"),
        ("Be brief.", "en"),
        ("Bitte fasse dich kürzer.", "de"),
        ("Más corto, por favor.", "es"),
        ("Plus court, s'il te plaît.", "fr"),
        ("请简短一点。", "zh"),
        ("もっと短く答えてください。", "ja"),
        ("Покороче, пожалуйста.", "ru"),
    ],
)
def test_the_language_of_a_wish_is_that_of_similar_texts(text: str, language: str) -> None:
    assert texts.language_of(text) == language


def test_three_of_four_anchors_are_in_the_persons_language_or_in_english() -> None:
    spoken = {wish.id: wish.language for wish in texts.wishes()}
    for language in ("en", "de"):
        prompts = anchors.next_anchors({"length": 1.0}, language, (), 48)
        own = [spoken[one.id.split("-")[0]] for one in prompts if one.theme == "length"]
        assert 20 <= sum(one in (language, "en") for one in own) < len(own) == 32


def test_most_anchors_have_the_wishs_theme_with_all_poles_and_places() -> None:
    prompts = anchors.next_anchors({"length": 1.0}, "en", (), 48)
    themes = Counter(one.theme for one in prompts)
    assert len({one.id for one in prompts}) == 48 and themes["length"] == 32 and themes[anchors.OTHER] == 8
    said = {wish.id: wish for wish in texts.wishes()}
    own = [said[one.id.split("-")[0]] for one in prompts if one.theme == "length"]
    assert Counter(one.pole for one in own) == {"long": 16, "short": 16}
    assert {one.place for one in own} == {"question", "system", "complaint"}
    known = [one.id for one in prompts]
    assert not {one.id for one in anchors.next_anchors({"length": 1.0}, "en", known, 48)} & set(known)


@pytest.mark.parametrize("language", ["en", "de"])
def test_facts_for_anchors_and_facts_for_measurements_are_disjoint(language: str) -> None:
    prompts = anchors.next_facts(language, (), 40)
    assert not {one.id for one in prompts} & {one.id for one in anchors.asked_with_wishes(language)}
    near = sum(one.language in (language, "en") for one in prompts)
    assert 28 <= near <= 36
    assert not {one.id for one in anchors.next_facts(language, [one.id for one in prompts], 40)} & {
        one.id for one in prompts
    }
    themes = anchors.drawn_themes(random.Random(0), {"length": 1.0}, ["fact", "length", "other", "tone"], 16)
    assert Counter(themes) == {"length": 8, "fact": 4, "other": 2, "tone": 2}


def test_shipped_facts_and_the_gates_questions_are_disjoint() -> None:
    def plain(text: str) -> str:
        return " ".join(re.findall(r"\w+", text.lower()))

    files = [Path(__file__).parents[3] / "launch" / f"gate_{name}.jsonl" for name in ("facts", "everyday")]
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    asked = {plain(row["messages"][-1]["content"]) for row in rows}
    held = [one for one in texts.facts() if one not in anchors.asked_with_wishes("en")]
    same = [one.text for one in held if plain(one.text) in asked]
    assert len(held) > 300 and not same, same


def test_a_wish_without_a_theme_gets_anchors_of_all_themes() -> None:
    themes = {one.theme for one in anchors.next_anchors({}, "en", (), 120)}
    assert themes == {wish.theme for wish in texts.wishes()} | {anchors.OTHER}


def test_anchors_end_when_all_prompts_are_used() -> None:
    everything = [one.id for some in anchors.by_theme().values() for one in some]
    assert len(everything) == len(set(everything))
    assert len(anchors.next_anchors({"length": 1.0}, "en", (), 10_000)) == len(everything)


def test_most_anchors_do_not_ask_for_the_wished_form() -> None:
    brief = pole_of("Too long. Please keep it to one or two sentences.")
    assert brief == "length short"
    found = anchors.next_anchors({"length": 1.0}, "en", (), 48, {brief})
    asked_for = {wish.id: wish.pole for wish in texts.wishes()}
    poles = [asked_for[one.id.partition("-")[0]] for one in found if one.theme == "length"]
    assert poles.count("long") >= 2.5 * poles.count("short") > 0
    everything = [one.id for some in anchors.by_theme("en").values() for one in some]
    again = anchors.next_anchors({"length": 1.0}, "en", (), 10_000, {brief})
    assert sorted(one.id for one in again) == sorted(everything)
