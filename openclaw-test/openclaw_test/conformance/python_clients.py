"""Checks with Python clients: openai, LangChain's ChatOpenAI, anthropic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from openclaw_test.conformance.target import (
    FUNCTION,
    MAX_TOKENS,
    NO_MODEL,
    PARAMETERS,
    QUESTION,
    TOOL,
    WRONG_KEY,
    Check,
    NotInstalledError,
    Target,
    expect,
    expect_call,
    expect_model,
)

MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
FORCED: Any = {"type": "function", "function": {"name": FUNCTION["name"]}}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise NotInstalledError(f"pip install {name.replace('_', '-')}") from error


def _raises(error: type[BaseException], status: int, call: Callable[[], object]) -> None:
    try:
        call()
    except error as caught:
        code = getattr(caught, "status_code", None)
        expect(code == status, f"status {code}, not {status}")
        return
    raise AssertionError(f"no {error.__name__}")


def openai_checks(target: Target) -> Mapping[str, Check]:
    """Returns the checks with the openai package."""
    openai = _library("openai")

    def ask(key: str = target.sent_key, **options: Any) -> Any:
        client = openai.OpenAI(base_url=target.base, api_key=key, max_retries=0)
        asked = {"model": target.model, "messages": MESSAGES, "max_tokens": MAX_TOKENS, **options}
        return client.chat.completions.create(**asked)

    def answer() -> None:
        answer_text = ask()
        expect(answer_text.choices[0].finish_reason in ("stop", "length"), "no finish reason")
        expect(answer_text.usage.completion_tokens > 0, "no usage")

    def stream() -> None:
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        expect(chunks[0].choices[0].delta.role == "assistant", "the first chunk names no role")
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        expect(reasons[-1] in ("stop", "length") and not any(reasons[:-1]), "finish reason not last")
        expect(chunks[-1].usage.completion_tokens > 0, "no usage at the end")

    def tool() -> None:
        choice = ask(tools=[TOOL], tool_choice=FORCED).choices[0]
        calls = choice.message.tool_calls or []
        expect(bool(calls) == (choice.finish_reason == "tool_calls"), "finish reason and calls disagree")
        for call in calls:
            expect_call(call.function.name, call.function.arguments, True)

    def streamed_tool() -> None:
        chunks = list(ask(tools=[TOOL], tool_choice=FORCED, stream=True))
        pieces = [call for c in chunks if c.choices for call in c.choices[0].delta.tool_calls or []]
        first = [call for call in pieces if call.index == 0]
        text = "".join(call.function.arguments or "" for call in first)
        expect_call(
            first[0].function.name if first else None,
            text,
            chunks[-1].choices[0].finish_reason == "tool_calls",
        )

    return {
        "answer": answer,
        "stream": stream,
        "tool": tool,
        "streamed-tool": streamed_tool,
        "wrong-field": lambda: _raises(openai.BadRequestError, 400, lambda: ask(temperature=99)),
        "other-model": lambda: expect_model(ask(model=NO_MODEL).model, target),
        "wrong-key": lambda: _raises(openai.AuthenticationError, 401, lambda: ask(WRONG_KEY)),
    }


def langchain_checks(target: Target) -> Mapping[str, Check]:
    """Returns the checks with LangChain's ChatOpenAI."""
    library, openai = _library("langchain_openai"), _library("openai")

    def model(key: str = target.sent_key, name: str = target.model, **options: Any) -> Any:
        asked = {"max_tokens": MAX_TOKENS, "max_retries": 0, "stream_usage": True, **options}
        return library.ChatOpenAI(base_url=target.base, api_key=key, model=name, **asked)

    def answer() -> None:
        expect(model().invoke(QUESTION).usage_metadata["output_tokens"] > 0, "no usage")

    def stream() -> None:
        chunks = list(model().stream(QUESTION))
        expect(sum(chunks[1:], chunks[0]).usage_metadata["output_tokens"] > 0, "no usage at the end")

    def bound() -> Any:
        return model().bind_tools([TOOL], tool_choice=FUNCTION["name"])

    def tool() -> None:
        message = bound().invoke(QUESTION)
        whole = message.response_metadata["finish_reason"] == "tool_calls"
        expect(bool(message.tool_calls) == whole, "finish reason and calls disagree")
        for call in message.tool_calls:
            expect_call(call["name"], json.dumps(call["args"]), True)

    def streamed_tool() -> None:
        chunks = list(bound().stream(QUESTION))
        whole = sum(chunks[1:], chunks[0])
        calls = whole.tool_call_chunks or [{"name": None, "args": ""}]
        expect_call(
            calls[0]["name"], calls[0]["args"], whole.response_metadata["finish_reason"] == "tool_calls"
        )

    return {
        "answer": answer,
        "stream": stream,
        "tool": tool,
        "streamed-tool": streamed_tool,
        "wrong-field": lambda: _raises(
            openai.BadRequestError, 400, lambda: model(temperature=99).invoke(QUESTION)
        ),
        "other-model": lambda: expect_model(
            model(name=NO_MODEL).invoke(QUESTION).response_metadata["model_name"], target
        ),
        "wrong-key": lambda: _raises(
            openai.AuthenticationError, 401, lambda: model(WRONG_KEY).invoke(QUESTION)
        ),
    }


def anthropic_checks(target: Target) -> Mapping[str, Check]:
    """Returns the checks with the anthropic package, with x-api-key."""
    anthropic = _library("anthropic")
    own_tool = {"name": FUNCTION["name"], "description": "Weather now", "input_schema": PARAMETERS}
    forced = {"tools": [own_tool], "tool_choice": {"type": "tool", "name": FUNCTION["name"]}}

    def client(key: str = target.sent_key) -> Any:
        return anthropic.Anthropic(base_url=target.url, api_key=key, max_retries=0)

    def asked(**options: Any) -> dict[str, Any]:
        return {"model": target.model, "messages": MESSAGES, "max_tokens": MAX_TOKENS, **options}

    def ask(key: str = target.sent_key, **options: Any) -> Any:
        return client(key).messages.create(**asked(**options))

    def streamed(**options: Any) -> Any:
        with client().messages.stream(**asked(**options)) as events:
            return events.get_final_message()

    def check(message: Any) -> None:
        expect(message.stop_reason in ("end_turn", "max_tokens"), f"stop reason {message.stop_reason}")
        expect(message.usage.output_tokens > 0, "no usage")

    def check_call(message: Any) -> None:
        calls = [block for block in message.content if block.type == "tool_use"]
        expect(bool(calls) == (message.stop_reason == "tool_use"), "stop reason and calls disagree")
        for call in calls:
            expect_call(call.name, json.dumps(call.input), True)

    return {
        "answer": lambda: check(ask()),
        "stream": lambda: check(streamed()),
        "tool": lambda: check_call(ask(**forced)),
        "streamed-tool": lambda: check_call(streamed(**forced)),
        "wrong-field": lambda: _raises(anthropic.BadRequestError, 400, lambda: ask(max_tokens=0)),
        "other-model": lambda: expect_model(ask(model=NO_MODEL).model, target),
        "wrong-key": lambda: _raises(anthropic.AuthenticationError, 401, lambda: ask(WRONG_KEY)),
    }
