"""Usage reports cached prompt tokens and reasoning tokens of the answer, in every API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from openclaw.types import Message
from tests.fakes.chat_client import HELLO, MODEL, ask, streamed
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

THOUGHT = "<think>\nso be it\n</think>"
CACHED = 4
STREAMED = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture
def reasoning(gateway: RunningGateway) -> int:
    """Makes the engine reason and report a part of the prompt as cached. Returns the number of reasoning tokens."""
    gateway.says(f"{THOUGHT}\n\nhello there")
    gateway.engine.cached = CACHED
    return len(gateway.tokenizer.encode(THOUGHT))


@STREAMED
def test_chat_counts_cached_and_reasoning_tokens(
    gateway: RunningGateway, reasoning: int, stream: bool
) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    usage = streamed(gateway, **options)[-1].usage if stream else ask(gateway).usage
    assert usage.prompt_tokens_details.cached_tokens == CACHED
    assert usage.completion_tokens_details.reasoning_tokens == reasoning
    assert usage.completion_tokens == len(gateway.engine.say) > reasoning > 0


def test_between_named_keys_only_tokens_of_the_continued_turn_count_as_cached(
    start_gateway: StartGateway,
) -> None:
    """Else a guess at another person's prompt shows whether it was sent."""
    gateway = start_gateway(api_keys="ada=key-ada,bob=key-bob")
    gateway.says("hello there")
    gateway.engine.cached = 10_000
    shapes: dict[str, Callable[[list[Message]], dict[str, Any]]] = {
        "/v1/chat/completions": lambda messages: {"messages": messages},
        "/v1/responses": lambda messages: {"input": messages},
        "/v1/messages": lambda messages: {"messages": messages, "max_tokens": 9},
        "/v1/completions": lambda messages: {"prompt": "a secret prompt"},
    }
    first: list[Message] = [{"role": "user", "content": "a secret prompt"}]
    assert cached_of(gateway, "ada", "/v1/chat/completions", messages=first) == 0
    for path, shape in shapes.items():
        assert cached_of(gateway, "bob", path, **shape(first)) == 0, path
    turn = gateway.store.turns.last_main(gateway.store.sessions.listing("ada")[0]["id"])
    assert turn is not None
    known = len(turn.prompt_ids) + len(turn.completion_ids)
    later: list[Message] = [*first, turn.response_message, {"role": "user", "content": "and then?"}]
    assert cached_of(gateway, "ada", "/v1/chat/completions", messages=later) == known


def cached_of(gateway: RunningGateway, key: str, path: str, **body: Any) -> int:
    headers = {"Authorization": f"Bearer key-{key}"}
    usage = httpx.post(f"{gateway.url}{path}", json=body, headers=headers, timeout=20).json()["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return int(usage["cache_read_input_tokens"] if details is None else details["cached_tokens"])


def test_each_of_several_answers_adds_its_reasoning(gateway: RunningGateway, reasoning: int) -> None:
    usage = ask(gateway, n=3).usage
    assert usage.completion_tokens_details.reasoning_tokens == 3 * reasoning
    assert usage.prompt_tokens_details.cached_tokens == CACHED


@STREAMED
def test_langchain_parses_both_counts(gateway: RunningGateway, reasoning: int, stream: bool) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, model=MODEL, stream_usage=True)
    if stream:
        chunks = list(model.stream("hello"))
        usage: Any = sum(chunks[1:], chunks[0]).usage_metadata
    else:
        usage = model.invoke("hello").usage_metadata
    assert usage["input_token_details"]["cache_read"] == CACHED
    assert usage["output_token_details"]["reasoning"] == reasoning


@STREAMED
def test_responses_count_cached_and_reasoning_tokens(
    gateway: RunningGateway, reasoning: int, stream: bool
) -> None:
    answer: Any = gateway.client.responses.create(model=MODEL, input="hello", stream=stream)
    usage = (list(answer)[-1].response if stream else answer).usage
    assert usage.input_tokens_details.cached_tokens == CACHED
    assert usage.output_tokens_details.reasoning_tokens == reasoning


@STREAMED
def test_messages_count_uncached_tokens_as_input(
    gateway: RunningGateway, reasoning: int, stream: bool
) -> None:
    import anthropic

    asked: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 200}
    asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEY, max_retries=0) as client:
        prompt = client.messages.count_tokens(
            model=MODEL, messages=HELLO, thinking=asked["thinking"]
        ).input_tokens
        if stream:
            with client.messages.stream(**asked) as events:
                usage = events.get_final_message().usage
        else:
            usage = client.messages.create(**asked).usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (CACHED, 0)
    assert usage.input_tokens == prompt - CACHED
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == reasoning


@STREAMED
def test_completions_count_the_cached_tokens_of_each_prompt(
    gateway: RunningGateway, reasoning: int, stream: bool
) -> None:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    prompts = ["hello you", "hello there you"]
    answer: Any = gateway.client.completions.create(
        model=MODEL, prompt=prompts, max_tokens=50, n=2, **options
    )
    usage = (list(answer)[-1] if stream else answer).usage
    longest = [len(gateway.tokenizer.encode(prompt)) for prompt in prompts]
    assert usage.prompt_tokens == sum(longest)
    assert usage.prompt_tokens_details.cached_tokens == sum(min(CACHED, length) for length in longest)
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_an_answer_finished_by_another_engine_keeps_its_cached_count(
    gateway: RunningGateway, reasoning: int
) -> None:
    gateway.engine.chunk, gateway.engine.die_after, gateway.engine.down = 1, 3, 0.1
    usage = ask(gateway).usage
    assert gateway.engine.requests[-1]["input_ids"] != gateway.engine.requests[0]["input_ids"]
    assert usage.prompt_tokens_details.cached_tokens == CACHED
    assert usage.completion_tokens_details.reasoning_tokens == reasoning


def test_an_answer_without_reasoning_counts_no_reasoning_tokens(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    usage = ask(gateway).usage
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert usage.completion_tokens_details.reasoning_tokens == 0
