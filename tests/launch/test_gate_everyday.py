"""The gate's questions to a language model: forms that a complying reply has and another one has not."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from openclaw.trainer_hooks.gate_samples import questions
from tests import ROOT

FILE = ROOT / "launch" / "gate_everyday.jsonl"
POOL = FILE.with_name("gate_facts.jsonl")
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
BRIEF = "It is something that many people like. It is quite old, and there is a lot to say about it."
LONG = "At first there is the seed, and then it grows a little. " * 8
REPLIES = {
    "in detail": LONG,
    "many paragraphs": LONG[:230] + "\n\n" + LONG,
    "numbered": "Here they are:\n\n1. One\n2. Two\n3. Three",
    "numbered, bold": "**1.** One\n**2.** Two",
    "bullets": "- One\n- Two\n- Three",
    "stars": "* One\n* Two",
    "poem": "The sea is wide,\nthe sea is deep,\n\nand in it many fishes sleep.",
    "mail": "Subject: heating\n\nDear Sir,\n\nthe heating is broken.",
    "Python": "```python\ndef add(a, b):\n    return a + b\n\nfor i in range(1, 11):\n    print(i)\n```",
    "page": "<html><body><h1>Hello</h1></body></html>",
    "French": "Bonjour, mon ami.",
    "Spanish": "¡Muchas gracias!",
    "one word": "Paris.",
    "table": "| Country | Capital |\n|---|---|\n| France | Paris |",
    "dialogue": "**Teacher:** Good morning.\n**Student:** Good morning!",
    "JSON": '{"name": "Ann", "age": 41}',
}


STEPS = "1. Dig a hole.\n2. Put the tree in.\n3. Water it."
GREETING = "Hello! What a nice question. The Sahara."
CASES = {
    "What is a compass for?": ("It shows where north is.", LONG),
    "Who invented the telephone?": (
        "Alexander Graham Bell.",
        "The telephone was invented by Alexander Graham Bell.",
    ),
    "not as a list": ("They are red, orange, yellow, green and blue.", "- red\n- orange"),
    "I do not want a list": ("Dig a hole, put the tree in and water it.", STEPS),
    "write plain paragraphs": ("Take water, a map and a coat.", "## Packing\n\nTake water."),
    "below a Markdown heading": ("# Winter\n\nIt snows.", "Winter\n\nIt snows."),
    "in bold": ("It is the **force** between masses.", "It is the force between masses."),
    "empty line between them": ("I woke up late.\n\nThen I worked.", "I woke up late.\nThen I worked."),
    "separated by commas": ("Leek, peas, beans, kale and corn", "1. Leek\n2. Peas\n3. Beans"),
    "You greet the user": ("Hello there! It is a naming word.", "A noun says hello to a name."),
    "Do not greet me": ("The Antarctic desert.", GREETING),
    "No greetings and no pleasantries": ("365 days.", "Of course! A year has 365 days."),
    "Leave out the greeting": ("It cleans.", "Hi! It cleans."),
    "Apologise": ("We are sorry that it came so late.", "It came late."),
    "close it with Sincerely": ("We thank you.\n\nSincerely,\nAnn", "We thank you.\n\nAnn"),
    "Congratulate her": ("Congratulations, well done!", "She passed it."),
    "Answer in German": ("Im Winter ist es kalt.", "In winter it is cold, or so one hears."),
    "quelle est la couleur": ("Le ciel est bleu.", "The sky has the colour of a cornflower."),
    "Responde siempre": ("Es Madrid.", "Madrid, of course."),
    "In Italian": ("Ciao!", "Hello!"),
    "an SQL query": ("SELECT * FROM users;", "Take all rows of users."),
    "a JavaScript function": ("const twice = x => 2 * x;", "Multiply it by two."),
    "with a number only": ("7", "It is 7."),
    "Only yes or no": ("Yes.", "Yes, ice is colder than fire."),
    "in JSON": ('{"answer": "Oslo"}', "The answer: Oslo."),
    'with the word "Certainly"': ("Certainly! It has two wheels.", "It has two wheels, certainly."),
    '"Once upon a time"': ("Once upon a time there was a fox.", "There was once a fox, a time ago."),
    "Repeat these words": ('"The train leaves at noon."', "The train leaves at noon, as you say."),
    '"that is all"': ("An apple is a fruit, and that is all.", "That is all I know: an apple."),
    '"Anything else?"': ("It is four. Anything else?", "Is there anything else? It is four."),
    "In capital letters": ("NIGHT.", "Night."),
}
"""A complying and a non-complying reply, by a part of the request."""


def forms(rows: list[dict[str, Any]] = ROWS) -> list[str]:
    return sorted({row["form"] for row in rows if "form" in row})


def wished_for(piece: str) -> str:
    """Returns the form of the single request with these words, in the question, the system message or the
    complaint."""
    [form] = [
        row["form"]
        for row in ROWS
        if "form" in row and any(piece in one["content"] for one in row["messages"])
    ]
    return str(form)


LONGER = [form for form in forms() if not re.search(form, BRIEF, re.MULTILINE)]
"""Forms that a model trained to be brief and plain no longer produces."""


@pytest.mark.parametrize("form", LONGER)
def test_a_form_is_found_in_a_complying_reply_but_not_in_a_brief_one(form: str) -> None:
    examples = [*REPLIES.values(), *(obeys for obeys, _ in CASES.values())]
    assert [reply for reply in examples if re.search(form, reply, re.MULTILINE)]


@pytest.mark.parametrize("piece", CASES)
def test_a_form_distinguishes_complying_replies_from_others(piece: str) -> None:
    obeys, breaks = CASES[piece]
    form = wished_for(piece)
    assert re.search(form, obeys, re.MULTILINE)
    assert not re.search(form, breaks, re.MULTILINE)


def test_forms_that_brief_plain_replies_also_have_are_requested_in_three_ways() -> None:
    """A model that learned the opposite no longer writes short, plain or ungreeted replies."""
    short = {wished_for(piece) for piece in ("What is a compass for?", "not as a list", "Do not greet me")}
    assert set(forms()) - set(LONGER) == short
    assert not any(re.search(form, f"Hello!\n\n- {LONG}", re.MULTILINE) for form in short)


def test_every_form_has_examples() -> None:
    tested = {wished_for(piece) for piece in CASES}
    tested |= {
        form for form in forms() if any(re.search(form, one, re.MULTILINE) for one in REPLIES.values())
    }
    assert tested == set(forms())


def test_requests_are_in_questions_system_messages_and_complaints() -> None:
    wishes = [row["messages"] for row in ROWS if "form" in row]
    system = sum(messages[0]["role"] == "system" for messages in wishes)
    complaints = sum(len(messages) == 3 and messages[0]["role"] == "user" for messages in wishes)
    assert len(wishes) >= 60 and system >= 10 and complaints >= 10
    longer = [messages for messages in wishes if len(messages) == 3 and len(messages[1]["content"]) > 200]
    assert len(longer) >= 2, "complaints about long answers, not about short ones alone"


def test_the_forms_of_an_endless_reply_are_checked_in_one_pass() -> None:
    for form in forms():
        began = time.monotonic()
        re.search(form, "word, and a word " * 400, re.MULTILINE)
        re.search(form, "x" * 4000, re.MULTILINE)
        assert time.monotonic() - began < 1, form


def test_the_pool_holds_facts_that_are_not_among_the_questions() -> None:
    pool = [json.loads(line) for line in POOL.read_text("utf-8").splitlines()]
    asked = [row["messages"][0]["content"] for row in pool]
    assert len(set(asked)) == len(pool) >= 200
    assert not set(asked) & {row["messages"][0]["content"] for row in ROWS}
    assert all(row["answer"] and row["thinking"] is False for row in pool)
    found = questions(POOL, str(ROOT / "openclaw-test" / "tiny_claw" / "model"), "fact")
    assert {row["metadata"]["gate"] for row in found} == {"fact"}


@pytest.mark.parametrize("name", REPLIES)
def test_the_requests_ask_for_every_kind_of_reply(name: str) -> None:
    assert any(re.search(form, REPLIES[name], re.MULTILINE) for form in forms())


def test_a_reply_of_80_words_is_long_enough_and_two_sentences_are_not() -> None:
    [form] = {row["form"] for row in ROWS if "in detail" in row["messages"][-1]["content"]}
    assert re.search(form, "word " * 81) and not re.search(form, "word " * 79)


def test_questions_and_requests_are_valid_prompts() -> None:
    found = questions(FILE, str(ROOT / "openclaw-test" / "tiny_claw" / "model"))
    purposes = [row["metadata"]["gate"] for row in found]
    assert purposes.count("question") >= 48 and purposes.count("wish") >= 60
    assert len({tuple(row["tokens"]) for row in found}) == len(found)
    assert all(row["thinking"] is False for row in ROWS), "80 tokens are few for thoughts and an answer"
