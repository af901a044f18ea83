"""The text of a chat message, for any shape of its content."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw.common.messages import LINE_BREAK, content_of, messages_in, text_of
from openclaw.sessions.transcript import same_answer

PARTS = [{"type": "text", "text": "That is"}, {"type": "image_url"}, "odd", {"type": "text", "text": "wrong"}]


@pytest.mark.parametrize(
    ("content", "text", "lines"),
    [
        ("hi", "hi", "hi"),
        (None, "", ""),
        ([], "", ""),
        (PARTS, "That iswrong", "That is\nwrong"),
        (7, "", ""),
    ],
)
def test_text_parts_are_joined_as_in_a_template_or_by_lines(content: object, text: str, lines: str) -> None:
    message = {"role": "user", "content": content}
    assert (text_of(message), text_of(message, LINE_BREAK)) == (text, lines)


@pytest.mark.parametrize("texts", [[], ["one"], ["one", "two"]])
def test_content_keeps_its_text_parts(texts: list[str]) -> None:
    content = content_of(texts)
    assert text_of({"content": content}, "|") == "|".join(texts)
    assert isinstance(content, str) == (len(texts) < 2)


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": "hi"}, {"messages": ["hi", 1]}])
def test_a_body_without_messages_has_none(body: dict[str, Any]) -> None:
    assert messages_in(body) == []


def test_answers_that_differ_only_in_white_space_or_json_formatting_match() -> None:
    def answer(text: str, arguments: str) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
        return {"role": "assistant", "content": text, "tool_calls": [call]}

    stored, sent = answer("done", '{"a": 1, "b": 2}'), answer("done ", '{"b":2,"a":1}')
    assert same_answer(stored, sent) and not same_answer(stored, sent, to_the_letter=True)
    assert same_answer(stored, answer("done", '{"a": 1, "b": 2}'), to_the_letter=True)
