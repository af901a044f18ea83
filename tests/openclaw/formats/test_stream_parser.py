"""For any split of an answer, its deltas add up to what `renderers` parses from the whole."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openclaw.formats.deltas import CallArguments, CallEnd, CallStart, TextDelta
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer

MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<tool_call>"]
CALL = '{"name": "read", "arguments": {"path": "a.txt"}}'
LONG = '{"name": "w", "arguments": {"a": [1, {"b": "}{\\\\" 你"}], "c": null}}'
TEXTS = [
    "hello",
    LONG,
    '"name": "x", "arguments": {"k": ',
    '"}}',
    "}",
    " there",
    "\n",
    "\n\n",
    "  ",
    "你好",
    "🦀",
    "\u00a0",
    CALL,
    "{",
    '{"name": 5}',
    "[]",
    "42.",
]
CHAT: dict[Path, ChatFormat] = {}


@pytest.fixture
def chat(model: Path) -> ChatFormat:
    if model not in CHAT:
        CHAT[model] = ChatFormat(ModelFolder.read(model), Tokenizer(model))
    return CHAT[model]


def parsed(chat: ChatFormat, pieces: list[list[int]], tools: bool = True) -> dict[str, Any]:
    """Returns the client's final result."""
    parser = chat.parser(tools)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish()
    calls: list[list[str]] = []
    for delta in deltas:
        if isinstance(delta, CallStart):
            calls.append([delta.name, ""])
        elif isinstance(delta, CallArguments):
            calls[-1][1] += delta.text
    return {
        "content": "".join(d.text for d in deltas if isinstance(d, TextDelta) and d.kind == "content"),
        "reasoning": "".join(d.text for d in deltas if isinstance(d, TextDelta) and d.kind != "content"),
        "calls": [(name, json.loads(arguments)) for name, arguments in calls],
    }


def expected(chat: ChatFormat, ids: list[int]) -> dict[str, Any]:
    """Returns the result of `renderers`; invalid calls, and the text after them up to a valid one, are text."""
    whole = chat._renderer(True).parse_response(ids)
    stop = next((at for at, token in enumerate(ids) if token in chat.stop_ids), len(ids))
    content, calls, shows, end = whole.content, [], True, None
    for call in whole.tool_calls or []:
        start, stop_of_call = call.token_span
        if shows and end is not None:
            content += chat.tokenizer.decode(ids[end:start])
        shows, end = not is_sound(call), stop_of_call
        if shows:
            content += chat.tokenizer.decode(ids[start:end])
        else:
            calls.append((call.name, call.arguments))
    if shows and end is not None:
        content += chat.tokenizer.decode(ids[end:stop])
    return {"content": content, "reasoning": (whole.reasoning_content or "").strip(), "calls": calls}


def is_sound(call: Any) -> bool:
    return call.status == "ok" and isinstance(call.name, str) and isinstance(call.arguments, dict)


def without_space(answer: dict[str, Any]) -> dict[str, Any]:
    """Removes white space around calls, whose trimming depends on whether the call is valid."""
    return {**answer, "content": "".join(answer["content"].split())}


def split(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted({cut % (len(ids) + 1) for cut in cuts}), len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]


@given(
    parts=st.lists(
        st.one_of(st.sampled_from(MARKERS), st.sampled_from(TEXTS), st.text(max_size=3)), max_size=14
    ),
    raw=st.lists(st.integers(3, 258), max_size=4),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_split_of_an_answer_gives_the_result_of_renderers(
    chat: ChatFormat, parts: list[str], raw: list[int], cuts: list[int]
) -> None:
    ids = [token for part in parts for token in chat.tokenizer.encode(part)]
    ids = ids[: len(ids) // 2] + raw + ids[len(ids) // 2 :]
    got, whole = parsed(chat, split(ids, cuts)), expected(chat, ids)
    assert without_space(got) == without_space(whole)
    assert got == whole or "<tool_call>" in got["content"]
    assert got == parsed(chat, [ids])


@given(text=st.text(max_size=30), cuts=st.lists(st.integers(0, 10_000), max_size=8))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_is_correct_for_any_split_of_its_bytes(chat: ChatFormat, text: str, cuts: list[int]) -> None:
    ids = [token for byte in text.encode() for token in chat.tokenizer.encode(chr(byte)) if byte < 128]
    ids = chat.tokenizer.encode(text) if not text.isascii() else ids
    got = parsed(chat, split(ids, cuts))
    assert got["content"] == text.strip()


@pytest.mark.parametrize(
    ("answer", "reasoning", "content", "calls"),
    [
        ("<think>\nso\n</think>\n\nhi", "so", "hi", 0),
        ("<think>\nso", "so", "", 0),
        (f"let me see\n<tool_call>\n{CALL}\n</tool_call>", "", "let me see", 1),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "", "", 2),
        (
            f"<think>maybe <tool_call>{CALL}</tool_call> no</think>ok",
            f"maybe <tool_call>{CALL}</tool_call> no",
            "ok",
            0,
        ),
        (f"<think>maybe<tool_call>{CALL}</tool_call>", "maybe", "", 1),
        ('<tool_call>{"name": "read", "argu', "", '<tool_call>{"name": "read", "argu', 0),
        ("a\n<tool_call>no\njson</tool_call>\nb ", "", "a\n<tool_call>no\njson</tool_call>\nb", 0),
        (f"<tool_call>{{}}</tool_call>\n<tool_call>{CALL}</tool_call> c", "", "<tool_call>{}</tool_call>", 1),
        (f"<tool_call>{CALL}</tool_call> c <tool_call>{{", "", "<tool_call>{", 1),
        (f"<think>so<tool_call>{CALL[:-1]}", "so", f"<tool_call>{CALL[:-1]}", 0),
    ],
)
def test_reasoning_text_and_calls_are_separated(
    chat: ChatFormat, answer: str, reasoning: str, content: str, calls: int
) -> None:
    ids = chat.tokenizer.encode(answer)
    got = parsed(chat, [[token] for token in ids])
    assert (got["reasoning"], got["content"], len(got["calls"])) == (reasoning, content, calls)


def test_without_tools_markup_is_text(chat: ChatFormat) -> None:
    ids = chat.tokenizer.encode(f"<tool_call>{CALL}</tool_call>")
    assert parsed(chat, [ids], tools=False)["content"] == f"<tool_call>{CALL}</tool_call>"


def test_text_is_streamed_before_the_answer_ends(chat: ChatFormat) -> None:
    parser = chat.parser(True)
    shown = [delta for token in chat.tokenizer.encode("hello there") for delta in parser.feed([token])]
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "hello there"


def test_the_end_token_and_later_text_are_hidden(chat: ChatFormat) -> None:
    ids = chat.tokenizer.encode("hi<|im_end|>\n<|im_start|>user")
    assert parsed(chat, [ids])["content"] == "hi"


def test_a_call_is_buffered_until_complete_and_streamed_as_text_once_invalid(chat: ChatFormat) -> None:
    parser = chat.parser(True)
    assert parser.feed(chat.tokenizer.encode(f"<tool_call>\n{CALL}\n")) == []
    call = [CallStart("read"), CallArguments('{"path": "a.txt"}'), CallEnd()]
    assert parser.feed(chat.tokenizer.encode("</tool_call>")) == call
    parser = chat.parser(True)
    assert parser.feed(chat.tokenizer.encode('<tool_call>{"name": "read",')) == []
    shown = parser.feed(chat.tokenizer.encode(" oops"))
    assert shown == [TextDelta("content", '<tool_call>{"name": "read", oops')]
    assert parser.feed(chat.tokenizer.encode(" go")) == [TextDelta("content", " go")]


def test_a_call_keeps_the_models_exact_arguments(chat: ChatFormat) -> None:
    call = r'{"arguments" : {"a":1.0,  "b": "\u00e9"} , "name": "read"}'
    deltas = chat.parser(True).feed(chat.tokenizer.encode(f"<tool_call>{call}</tool_call>"))
    assert deltas[1] == CallArguments(r'{"a":1.0,  "b": "\u00e9"}')


def test_a_call_of_an_unknown_tool_is_text(chat: ChatFormat) -> None:
    parser = chat.parser(True)
    parser.begin([], [{"type": "function", "function": {"name": "write"}}])
    ids = chat.tokenizer.encode(f"<tool_call>{CALL}</tool_call>")
    assert parser.feed(ids) == [TextDelta("content", f"<tool_call>{CALL}</tool_call>")]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "read", "arguments": {"path": NaN}}',
        '{"name": "read", "arguments": {"path": 1}, oops}',
        '{"name": "read", "arguments": {"path": 1}, "name": 5}',
        '{"name": "read", "arguments": {"path": }}',
        '{"name": "read", "arguments": "{no json"}',
        '{"name": "read", "arguments": ["a.txt"]}',
        '{"name": "read", "arguments": "[1]"}',
        '{"name": "read", "arguments": {"path": 1}}}',
        '{"name": "read", "arguments": {"path": 1}',
        '{"name": "", "arguments": {"path": 1}}',
        '[{"name": "read", "arguments": {"path": 1}}]',
        '{"name": "read", "arguments": {"path": "a\nb"}}',
        '{"name": "read", "arguments": {"path": 01}}',
        "",
        r'{"name": "re\ud800ad", "arguments": {"path": 1}}',
        r'{"arguments": {"path": 1}, "name": "re\ud800ad"}',
    ],
)
def test_a_call_with_invalid_json_is_text(chat: ChatFormat, call: str) -> None:
    ids = chat.tokenizer.encode(f"<tool_call>{call}</tool_call>")
    got = parsed(chat, [[token] for token in ids])
    assert got["calls"] == [] and got["content"] == f"<tool_call>{call}</tool_call>"


@pytest.mark.parametrize(
    ("answer", "reasoning"),
    [
        ("<think>\nso\n</think>\n\nhi", "<think>\nso\n</think>"),
        ("<think>\nso", "<think>\nso"),
        ("<think><think>so</think>hi</think>", "<think><think>so</think>"),
        (
            f"<think>a <tool_call>{CALL}</tool_call> b</think>ok",
            f"<think>a <tool_call>{CALL}</tool_call> b</think>",
        ),
        (f"<think>a<tool_call>{CALL}</tool_call>", "<think>a"),
        (f"hi<tool_call>{CALL}</tool_call>", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_tokens_of_the_reasoning_are_counted(
    chat: ChatFormat, answer: str, reasoning: str, size: int
) -> None:
    ids, parser = chat.tokenizer.encode_markup(answer), chat.parser(True)
    for at in range(0, len(ids), size):
        parser.feed(ids[at : at + size])
    parser.finish()
    assert parser.reasoning_tokens() == len(chat.tokenizer.encode_markup(reasoning))


def test_a_prompt_that_opens_the_reasoning_counts_it_from_the_first_token(chat: ChatFormat) -> None:
    parser, encode = chat.parser(True), chat.tokenizer.encode_markup
    parser.begin(encode("<think>\n"), None)
    parser.feed(encode("so</think>hi<|im_end|>"))
    assert parser.reasoning_tokens() == len(encode("so</think>"))
