"""Cost limits of a request and of a client: rejected before they cost, and without delaying others."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.running import RunningAnswers
from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO = {"role": "user", "content": "hi"}


def post(gateway: RunningGateway, content: str, **body: object) -> httpx.Response:
    return gateway.http.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": content}], **body}
    )


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the lengths, in characters, of tokenized texts."""
    found: list[int] = []
    whole = Tokenizer.encode_markup

    def counted(self: Tokenizer, text: str) -> list[int]:
        found.append(len(text))
        return whole(self, text)

    monkeypatch.setattr(Tokenizer, "encode_markup", counted)
    return found


@pytest.mark.parametrize(
    "text", ["a" * 7_000_000, "two words " * 700_000, "<|im_start|>" * 500_000, "\n \t" * 1_300_000]
)
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_a_too_long_text_is_rejected_before_tokenization(
    gateway: RunningGateway, tokenised: list[int], text: str, route: str
) -> None:
    body = {"max_tokens": 5}
    body |= (
        {"prompt": text} if route == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    )
    answer = gateway.http.post(route, json=body)
    words = "prompt is too long" if route == "/v1/messages" else "maximum context length"
    assert answer.status_code == 400 and words in answer.text
    assert sum(tokenised) < 1_000_000  # characters; the whole text is seven times as long


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": [f"value {number}" for number in range(200_000)]},
        {"type": "object", "properties": {f"p{number}": {"$ref": "#"} for number in range(150_000)}},
        {"type": "object", "description": "two words " * 300_000},
    ],
    ids=["enum", "properties", "description"],
)
def test_too_long_tools_are_rejected_before_tokenization(
    gateway: RunningGateway, tokenised: list[int], schema: dict[str, Any]
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    answer = post(gateway, "hi", tools=tools)
    assert answer.status_code == 400 and "context" in answer.text
    assert sum(tokenised) < 1_000_000


def call_of(arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "two words " * 700_000},
        {"content": "\n \t" * 1_000_000},
        {"content": None, "tool_calls": [call_of('{"a": "' + "two words " * 700_000 + '"}')]},
    ],
    ids=["words", "spaces", "call"],
)
def test_too_long_assistant_texts_are_not_fully_tokenized(
    gateway: RunningGateway, tokenised: list[int], answer: dict[str, Any]
) -> None:
    history = [HELLO, {"role": "assistant", **answer}, HELLO]
    refused = gateway.http.post("/v1/chat/completions", json={"messages": history})
    assert refused.status_code == 400 and "context" in refused.text
    assert sum(tokenised) < 1_500_000


def test_many_assistant_texts_are_tokenized_until_the_context_is_full(
    gateway: RunningGateway, tokenised: list[int]
) -> None:
    answers = [{"role": "assistant", "content": f"word {number} " * 100} for number in range(6_000)]
    refused = gateway.http.post("/v1/chat/completions", json={"messages": [HELLO, *answers, HELLO]})
    assert refused.status_code == 400 and "context" in refused.text
    assert sum(tokenised) < 1_500_000  # of seven million


def test_reasoning_omitted_by_the_template_does_not_count_for_the_limit(gateway: RunningGateway) -> None:
    gateway.says("hi")
    thought = {"role": "assistant", "content": "9", "reasoning_content": "two words " * 500_000}
    answer = gateway.http.post("/v1/chat/completions", json={"messages": [HELLO, thought, HELLO]})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 50_000}]}, "too_many_messages"),
        ({"messages": [HELLO, {"role": "assistant", "tool_calls": [call_of("{}")] * 50_000}]}, "too_many_messages"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 50_000}, "too_many_messages"),
        ({"metadata": {str(number): {} for number in range(250_000)}}, "invalid_json"),
        ({"metadata": [[]] * 250_000}, "invalid_json"),
        ({"chat_template_kwargs": {"note": "x" * 20_000}}, None),
    ],
    ids=["parts", "calls", "tools", "objects", "lists", "options"],
)  # fmt: skip
def test_too_many_message_parts_are_rejected_at_once(
    gateway: RunningGateway, tokenised: list[int], body: dict[str, Any], code: str | None
) -> None:
    refused = gateway.http.post("/v1/chat/completions", json={"messages": [HELLO], **body})
    assert refused.status_code == 400 and refused.json()["error"]["code"] == code
    assert sum(tokenised) < 20_000


def test_an_error_shortens_a_long_invalid_value(start_gateway: StartGateway) -> None:
    gateway = start_gateway(strict_model_name=True)
    refused = post(gateway, "hi", model="x" * 1_000_000)
    assert refused.status_code == 404 and len(refused.content) < 1_000
    role = {"role": "x" * 1_000_000, "content": "hi"}
    refused = gateway.http.post("/v1/chat/completions", json={"messages": [role]})
    assert refused.status_code == 400 and len(refused.content) < 1_000


def test_too_deeply_nested_tools_are_rejected(gateway: RunningGateway) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"inner": schema}}
    answer = post(
        gateway, "hi", tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}]
    )
    assert answer.status_code == 400 and "nested" in answer.text


def test_expensive_stop_strings_are_rejected(gateway: RunningGateway) -> None:
    gateway.says("a" * 50)
    answer = post(gateway, "hi", stop="a" * 100_000)
    assert answer.status_code == 400 and "1000 characters" in answer.text
    assert post(gateway, "hi", stop=["a" * 999 + "b"] * 16).status_code == 200


def test_prompts_near_the_limit_are_counted_exactly(gateway: RunningGateway) -> None:
    gateway.says("yes")
    room = gateway.app.state.gateway.context_length
    for text in ("a b" * room, "word " * room):
        ids = len(gateway.tokenizer.encode(text))
        assert gateway.tokenizer.exceeds([text], ids) is False
        assert gateway.tokenizer.exceeds([text, text], ids) is True
    assert post(gateway, "word " * (room // 10)).status_code == 200


def test_other_streams_do_not_wait_for_a_large_prompt(gateway: RunningGateway) -> None:
    gateway.says("yes")
    with ThreadPoolExecutor(4) as pool:
        large = [pool.submit(post, gateway, "two words " * 700_000) for _ in range(3)]
        while not all(one.done() for one in large):
            began = time.monotonic()
            assert gateway.http.get("/healthz").status_code == 200
            assert time.monotonic() - began < 5
        assert {one.result().status_code for one in large} == {400}


def test_one_clients_open_requests_are_limited(start_gateway: StartGateway) -> None:
    gateway = start_gateway(max_open_requests=2)
    gateway.says("hello there")
    gateway.engine.pause = 0.5
    with ThreadPoolExecutor(4) as pool:
        answers = [one.result() for one in [pool.submit(post, gateway, "hi") for _ in range(4)]]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 2 and refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["error"]["code"] == "too_many_open_requests"
    gateway.engine.pause = 0.0
    assert post(gateway, "hi").status_code == 200  # ended requests free their places


def test_one_client_cannot_fill_the_memory_with_bodies(start_gateway: StartGateway) -> None:
    gateway = start_gateway(max_open_bytes=10_000)
    gateway.says("yes")
    assert post(gateway, "x" * 9_000).status_code in (200, 400)
    assert post(gateway, "x" * 20_000).status_code == 429
    assert post(gateway, "hi").status_code == 200


async def test_under_overload_main_turns_precede_side_turns() -> None:
    answers, order = RunningAnswers(2), []
    release = asyncio.Event()

    async def answer(name: str, kind: str) -> None:
        async with answers.place(kind):
            order.append(name)
            await release.wait()

    tasks = [asyncio.create_task(answer("main 1", "main")), asyncio.create_task(answer("side 1", "side"))]
    tasks += [asyncio.create_task(answer("side 2", "side")), asyncio.create_task(answer("main 2", "main"))]
    tasks += [asyncio.create_task(answer("main 3", "main"))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["main 1", "main 2"] and answers.waiting == 3
    release.set()
    await asyncio.gather(*tasks)
    assert order == ["main 1", "main 2", "main 3", "side 1", "side 2"] and answers.running == 0


async def test_a_waiting_client_that_disconnects_frees_its_place() -> None:
    answers, release = RunningAnswers(1), asyncio.Event()

    async def answer() -> None:
        async with answers.place("main"):
            await release.wait()

    first, second, third = (asyncio.create_task(answer()) for _ in range(3))
    await asyncio.sleep(0.01)
    second.cancel()
    release.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert answers.running == 0 and answers.waiting == 0


def test_running_streams_continue_and_side_turns_wait_for_main_turns(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway(max_running=2)
    gateway.says("hello there, how are you today? the answer is 42.")
    gateway.engine.pause = 0.15
    running = gateway.app.state.gateway.running
    with ThreadPoolExecutor(4) as pool:
        main = pool.submit(post, gateway, "hi", turn_type="main")
        gateway.wait_for(lambda: running.running == 1)
        side = pool.submit(post, gateway, "hi", turn_type="side")
        gateway.wait_for(lambda: running.waiting == 1)
        later = pool.submit(post, gateway, "hi", turn_type="main")
        gateway.wait_for(lambda: running.running == 2)
        assert not side.done() and not main.done()
        assert gateway.http.get("/healthz").status_code == 200
        assert main.result().status_code == later.result().status_code == 200
        assert side.result().status_code == 200


def test_health_responds_while_all_places_are_occupied(start_gateway: StartGateway) -> None:
    gateway = start_gateway(max_running=1)
    gateway.says("hello there, how are you today?")
    gateway.engine.pause = 0.3
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(post, gateway, "hi") for _ in range(3)]
        gateway.wait_for(lambda: gateway.app.state.gateway.running.waiting == 2)
        assert gateway.http.get("/healthz").status_code == 200
        assert {one.result().status_code for one in answers} == {200}
