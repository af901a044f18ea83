"""Token ids that open and close reasoning, by family, and whether a prompt ends inside reasoning."""

from __future__ import annotations

import pytest

from openclaw.formats.reasoning import ReasoningMarks
from openclaw.types import Message
from tests.openclaw.formats.test_families import family

ASK: list[Message] = [{"role": "user", "content": "Why?"}]
TALK: list[Message] = [*ASK, {"role": "assistant", "content": "Because."}, {"role": "user", "content": "Hm?"}]


def marks_of(name: str) -> ReasoningMarks:
    marks = family(name).family.reasoning
    assert marks is not None
    return marks


@pytest.mark.parametrize(
    ("name", "enabled"), [("qwen3", None), ("qwen3.5", True), ("nemotron-3", True), ("glm-4.5", None)]
)
@pytest.mark.parametrize("messages", [ASK, TALK])
def test_a_prompt_opens_reasoning_closes_it_or_leaves_it_to_the_model(
    name: str, enabled: bool | None, messages: list[Message]
) -> None:
    render, marks = family(name).render, marks_of(name)
    assert marks.is_open_after(render(messages, None, True)) is enabled
    assert marks.is_open_after(render(messages, None, False)) is False


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "nemotron-3", "glm-4.5"])
def test_the_parser_puts_the_ids_between_the_marks_into_the_reasoning(name: str) -> None:
    marks, prompt = marks_of(name), family(name).render(ASK, None, True)
    spell = family(name).tokenizer.encode
    opening = [] if marks.is_open_after(prompt) else [marks.open_id]
    ids = [*opening, *spell("hm, easy"), marks.close_id]
    parser = family(name).parser(tools=False)
    parser.begin(prompt, None)
    parser.feed([*ids, *spell("Yes.")])
    parser.finish()
    assert parser.reasoning_tokens() in (len(ids), len(ids) - 1)


def test_a_family_without_such_tokens_has_no_marks() -> None:
    assert family("llama-3").family.reasoning is None


def test_the_opening_may_follow_white_space_only() -> None:
    marks, spell = marks_of("qwen3"), family("qwen3").tokenizer.encode
    assert marks.opening([marks.open_id, 5, marks.open_id]) == [marks.open_id]
    assert marks.opening([*spell("\n"), marks.open_id, 5]) == [*spell("\n"), marks.open_id]
    assert marks.opening([*spell("Yes"), marks.open_id]) is None
    assert marks.opening([marks.close_id, marks.open_id]) is None
    assert marks.opening(spell("\n")) is None
