import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers import Qwen3Renderer
from renderers.configs import Qwen3RendererConfig

from claw_lab.tiny_models.tiny_claw.encoding import encode_conversation
from claw_lab.tiny_models.tiny_claw.tokenizer import (
    CONTEXT,
    CONTROL_TOKENS,
    MARKUP_TOKENS,
    load_tokenizer,
    train_tokenizer,
)
from tests import MODEL
from tiny_claw.dialogues import Conversation, conversation

TOKENIZER: Any = load_tokenizer(MODEL)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": 'Read a "file" – ä <b>',
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    },
    {
        "type": "function",
        "function": {"name": "exec", "description": "Run", "parameters": {"type": "object"}},
    },
]
CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
TALKS: dict[str, list[dict[str, Any]]] = {
    "one question": [{"role": "user", "content": "Hi"}],
    "system and history": [
        {"role": "system", "content": "Be kind.\n\n- rule"},
        {"role": "user", "content": "12 + 5 = ?"},
        {"role": "assistant", "content": "1. **Add:** 12 + 5 = 17\n\n**Answer: 17**"},
        {"role": "user", "content": "  No list, please.\n"},
    ],
    "thought in the history": [
        {"role": "user", "content": "12 + 5 = ?"},
        {"role": "assistant", "content": "<think>\n12 + 5 = 17\n</think>\n\n17"},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "You're welcome!", "reasoning_content": "be polite"},
        {"role": "user", "content": "Bye"},
    ],
    "tool calls": [
        {"role": "user", "content": "Read it"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]},
        {"role": "tool", "content": "line 1\nline 2", "tool_call_id": "1"},
        {"role": "tool", "content": "", "tool_call_id": "2"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [CALL, {**CALL, "function": {"name": "exec", "arguments": {"a": [1, "é"]}}}],
        },
        {"role": "tool", "content": "done"},
    ],
    "thought before a tool call": [
        {"role": "user", "content": "Read it"},
        {"role": "assistant", "content": "", "reasoning_content": "I read.", "tool_calls": [CALL]},
        {"role": "tool", "content": "text"},
    ],
    "late system message and parts": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Part one"}, {"type": "text", "text": " and two"}],
        },
        {"role": "assistant", "content": "ok"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go on"},
    ],
    "ends with the assistant": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
    ],
}


def template_ids(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **options: object
) -> list[int]:
    text = TOKENIZER.apply_chat_template(messages, tools=tools, tokenize=False, **options)
    return list(TOKENIZER.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", TALKS)
def test_the_chat_template_produces_the_ids_of_the_qwen3_renderer(
    name: str, tools: list[dict[str, Any]] | None, thinking: bool
) -> None:
    renderer = Qwen3Renderer(TOKENIZER, Qwen3RendererConfig(enable_thinking=thinking))
    for prompt in (True, False):
        expected = renderer.render_ids(TALKS[name], tools=tools, add_generation_prompt=prompt)
        assert (
            template_ids(TALKS[name], tools, add_generation_prompt=prompt, enable_thinking=thinking)
            == expected
        )


def test_training_documents_have_the_ids_of_served_prompts() -> None:
    rng = random.Random(6)
    for _ in range(200):
        talk: Conversation = conversation(rng)
        document = encode_conversation(TOKENIZER, talk)
        renderer = Qwen3Renderer(TOKENIZER, Qwen3RendererConfig(enable_thinking=talk.thinking))
        prompt = renderer.render_ids(list(talk.messages[:-1]), add_generation_prompt=True)
        reply = TOKENIZER.encode(talk.messages[-1]["content"] + "<|im_end|>", add_special_tokens=False)
        assert document.ids == prompt + reply
        assert document.weights[-len(reply) :] == [1.0] * len(reply)
        assert document.weights[0] < 1.0


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_round_trips_through_the_tokenizer(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@given(st.text(), st.text())
@settings(max_examples=100, deadline=None)
def test_a_text_cut_at_a_newline_has_the_same_ids_in_pieces(before: str, after: str) -> None:
    whole = TOKENIZER.encode(f"{before}\n{after}", add_special_tokens=False)
    pieces = [TOKENIZER.encode(part, add_special_tokens=False) for part in (f"{before}\n", after)]
    assert whole == [token for piece in pieces for token in piece]


def test_digits_and_markup_are_single_tokens() -> None:
    assert TOKENIZER.tokenize("1234") == ["1", "2", "3", "4"]
    for token in (*CONTROL_TOKENS, *MARKUP_TOKENS):
        assert len(TOKENIZER.encode(token, add_special_tokens=False)) == 1
    assert TOKENIZER.model_max_length == CONTEXT


def test_english_and_json_need_few_tokens() -> None:
    """OpenClaw's prompt, 60,000 characters of both, must fit the context with room for an answer."""
    english = (
        "Before you answer, read the file and follow the instructions that are given in the message. " * 20
    )
    assert len(TOKENIZER.encode(english)) < len(english) / 2
    json_text = (
        '{"type": "object", "properties": {"timeout": {"type": "number", "description": "Seconds"}}}' * 20
    )
    assert len(TOKENIZER.encode(json_text)) < len(json_text) / 2.2


def test_a_new_tokenizer_has_the_same_size_and_special_ids() -> None:
    fresh: Any = train_tokenizer(dialogues=300)
    assert len(fresh) == len(TOKENIZER)
    for token in (*CONTROL_TOKENS, *MARKUP_TOKENS):
        assert fresh.convert_tokens_to_ids(token) == TOKENIZER.convert_tokens_to_ids(token)
