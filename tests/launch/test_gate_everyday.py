"""What a language model is asked before an update goes live: forms that an obeying reply has and a brief one has not."""

from __future__ import annotations

import json
import re

import pytest

from openclaw.trainer_hooks.gate_samples import questions
from tests import ROOT

FILE = ROOT / "launch" / "gate_everyday.jsonl"
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


def forms() -> list[str]:
    return sorted({row["form"] for row in ROWS if "form" in row})


@pytest.mark.parametrize("form", forms())
def test_a_form_is_in_a_reply_that_obeys_and_not_in_a_brief_one(form: str) -> None:
    assert [name for name, reply in REPLIES.items() if re.search(form, reply, re.MULTILINE)]
    assert not re.search(form, BRIEF, re.MULTILINE)


@pytest.mark.parametrize("name", REPLIES)
def test_every_kind_of_reply_is_wished_for(name: str) -> None:
    assert any(re.search(form, REPLIES[name], re.MULTILINE) for form in forms())


def test_a_reply_of_40_words_is_long_enough_and_two_sentences_are_not() -> None:
    [form] = {row["form"] for row in ROWS if "in detail" in row["messages"][-1]["content"]}
    assert re.search(form, "word " * 41) and not re.search(form, "word " * 39)


def test_questions_and_wishes_are_prompts_of_a_model() -> None:
    found = questions(FILE, str(ROOT / "openclaw-test" / "tiny_claw" / "model"))
    purposes = [row["metadata"]["gate"] for row in found]
    assert purposes.count("question") >= 20 and purposes.count("wish") >= 20
    assert len({tuple(row["tokens"]) for row in found}) == len(found)
    assert all(row["thinking"] is False for row in ROWS), "80 tokens are few for thoughts and an answer"
