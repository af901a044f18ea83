"""Tests a person's conversation with a loop started by the launch script, which trains meanwhile."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from openclaw.progress.__main__ import main as progress
from openclaw_test.loop.real_loop import Loop

pytestmark = pytest.mark.timeout(240)
PROBLEM = "Tom has 12 apples and buys 7 more. How many apples does Tom have?"
COMPLAINT = "That looks like AI. Please no bullet points, write it in plain sentences."


@pytest.fixture
def client(loop: Loop) -> OpenAI:
    return OpenAI(base_url=f"{loop.url}/v1", api_key="any", max_retries=0)


def session() -> dict[str, Any]:
    return {"extra_headers": {"X-Session-Id": uuid.uuid4().hex}}


def talk(client: OpenAI, *wishes: str) -> list[dict[str, Any]]:
    """Plays a conversation in one session: the problem, then each request after an answer. Returns its messages."""
    scope = session()
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROBLEM}]
    for wish in (*wishes, None):
        answer = client.chat.completions.create(model="tiny-claw", messages=messages, max_tokens=200, **scope)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        if wish is not None:
            messages.append({"role": "user", "content": wish})
    return messages


def test_openai_client_gets_an_answer_with_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny-claw", messages=[{"role": "user", "content": PROBLEM}], max_tokens=200, temperature=0
    )
    assert "19" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens > 0
    assert [model.id for model in client.models.list()] == ["tiny-claw"]


def cached_and_prompt_tokens(client: OpenAI) -> tuple[int, int]:
    """Returns (cached tokens of the second answer of a conversation, prompt tokens of the first)."""
    messages: Any = [{"role": "user", "content": PROBLEM}]
    first = client.chat.completions.create(model="tiny-claw", messages=messages, max_tokens=200)
    messages += [first.choices[0].message, {"role": "user", "content": "Thanks!"}]
    second = client.chat.completions.create(model="tiny-claw", messages=messages, max_tokens=200)
    assert first.usage is not None and second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    return second.usage.prompt_tokens_details.cached_tokens or 0, first.usage.prompt_tokens


def test_the_second_turn_of_a_conversation_uses_the_cache_of_the_first(client: OpenAI) -> None:
    # New weights that go live between the two answers empty the cache.
    tried = [cached_and_prompt_tokens(client) for _ in range(3)]
    assert any(cached > prompt for cached, prompt in tried), tried


def test_streamed_answer_comes_in_many_pieces(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny-claw",
        messages=[{"role": "user", "content": PROBLEM}],
        max_tokens=200,
        temperature=0,  # at 1 some answers are bare numbers
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    pieces = [
        chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content
    ]
    assert len(pieces) > 5
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens >= len(pieces)


def test_curl_streams_to_done(loop: Loop) -> None:
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50})
    shown = subprocess.run(
        [
            "curl",
            "-sN",
            f"{loop.url}/v1/chat/completions",
            "-H",
            "Content-Type: application/json",
            "-d",
            body,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert shown.rstrip().endswith("data: [DONE]")


def test_conversations_are_trained_and_new_weights_go_live(loop: Loop, client: OpenAI) -> None:
    before = loop.status()
    for _ in range(4):
        talk(client, COMPLAINT, "Thanks, that is exactly how I like it.")

    def all_is_trained() -> bool:
        # Turns of earlier tests may produce a separate version.
        now = loop.status()
        is_new = now["weight_version"] > before["weight_version"]
        return is_new and all(
            now[kind].get(state, 0) >= before[kind].get(state, 0) + 4
            for kind, state in (("turns", "judged"), ("samples", "trained"))
        )

    loop.wait_for(all_is_trained, 60, "new weight version of four talks")


def test_learning_is_reported_relative_to_the_first_model(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--url",
        loop.url,
        "--sample",
        "1",
        "--json",
        "--wish",
        "Please write plain sentences, no lists.",
    ]
    assert progress(words) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["wish_1"]["before"] is not None and rows["facts"]["count"] == 1
    assert (loop.run_dir / "progress").is_dir()


def test_stored_ids_are_the_ids_sent_to_the_client(loop: Loop, client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny-claw",
        messages=[{"role": "user", "content": PROBLEM}],
        max_tokens=200,
        extra_body={"return_token_ids": True},
        **session(),
    )
    from openclaw.store import RolloutStore

    store = RolloutStore(loop.run_dir / "buffer")
    turn = store.turns.get_by_completion(answer.id)
    assert turn is not None
    told = answer.choices[0].model_dump()
    assert turn.completion_ids == told["token_ids"]
    assert len(turn.completion_log_probs) == len(turn.completion_ids)
    assert turn.version_spans[0][1] == 0 and turn.version_spans[-1][2] == len(turn.completion_ids)


def test_a_request_that_asks_for_privacy_is_not_stored(loop: Loop, client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny-claw",
        messages=[{"role": "user", "content": PROBLEM}],
        extra_headers={"X-Train": "off"},
        max_tokens=200,
    )
    assert answer.id not in [row["completion_id"] for row in loop.turns("completion_id")]


def test_bad_requests_name_the_field_and_store_nothing(loop: Loop, client: OpenAI) -> None:
    stored = len(loop.turns("completion_id"))
    with pytest.raises(BadRequestError, match="messages"):
        client.chat.completions.create(model="tiny-claw", messages=[])
    with pytest.raises(BadRequestError, match="role"):
        client.chat.completions.create(model="tiny-claw", messages=[{"role": "poet", "content": "x"}])  # type: ignore
    with pytest.raises(BadRequestError, match="context"):
        client.chat.completions.create(
            model="tiny-claw", messages=[{"role": "user", "content": "12 " * 40000}]
        )
    assert len(loop.turns("completion_id")) == stored


def test_every_process_of_the_loop_is_listed(loop: Loop) -> None:
    for role in ("gateway", "engine", "judge", "buffer", "trainer", "driver"):
        assert loop.pids(role), role


def test_no_process_of_the_loop_has_a_memory_arena_per_thread(loop: Loop) -> None:
    for role in ("gateway", "engine", "judge", "buffer", "trainer"):
        for pid in loop.pids(role):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert b"MALLOC_ARENA_MAX=2" in environment, role
