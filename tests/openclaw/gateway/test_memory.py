"""A preference from a person's complaint is in their next prompts, and in no one else's."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw.gateway.gateway import inject
from openclaw.methods.hinted_prompt import HINT_HEADER
from openclaw.types import Drop, Judgement, Turn, Vote
from tests.fakes.chat_client import CALL, HELLO, TOOLS
from tests.fakes.running_gateway import RunningGateway, StartGateway

WISH = "Please write it in plain sentences."
OTHER = "Never use any emoji, please."
LATER: list[Any] = [{"role": "user", "content": "a new question"}]


@pytest.fixture
def remembering(start_gateway: StartGateway) -> RunningGateway:
    gateway = start_gateway(memory=True)
    gateway.says("hi")
    return gateway


def ask(gateway: RunningGateway, messages: list[Any] = LATER, key: str | None = None, **more: Any) -> Turn:
    """Returns the stored turn of a request; `key` names the key, `headers` are additional ones."""
    headers = more.pop("headers", {}) | ({"Authorization": f"Bearer {key}"} if key else {})
    answer = gateway.http.post("/v1/chat/completions", json={"messages": messages, **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    turn: Turn = gateway.turn(answer.json()["id"])
    return turn


def complain(gateway: RunningGateway, turn: Turn, wish: str = WISH) -> None:
    """Stores the judgement of a complaint about a turn."""
    gateway.store.turns.answer(turn.id, [{"role": "user", "content": "I do not like that."}])
    vote = Vote(score=1, hint=wish)
    found = [Judgement(kind="hint", score=1.0, votes=[vote], judge="test", hints=[wish])]
    assert gateway.store.judgements.finish(turn.id, found, Drop("test"))


def prompt(gateway: RunningGateway, turn: Turn) -> str:
    """Returns the engine's last prompt, which equals the stored one."""
    assert turn.prompt_ids == gateway.engine.requests[-1]["input_ids"]
    text: str = gateway.tokenizer.decode(turn.prompt_ids)
    return text


def test_a_preference_is_in_the_next_prompt_and_stored_separately_from_the_messages(
    remembering: RunningGateway,
) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    turn = ask(remembering, user="ada")
    assert f"a new question\n\n[user's hint / instruction]\n{WISH}" in prompt(remembering, turn)
    assert (turn.memory, turn.messages) == ([WISH], LATER)


def test_a_preference_is_in_no_other_persons_prompt(remembering: RunningGateway) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    for others in ({"user": "bob"}, {}):
        turn = ask(remembering, **others)
        assert WISH not in prompt(remembering, turn) and not turn.memory
    off = ask(remembering, user="ada", headers={"X-Memory": "off"})
    side = ask(remembering, user="ada", headers={"X-Turn-Type": "side"})
    assert [off.memory, side.memory] == [None, None]
    complain(remembering, off, OTHER)
    assert [wish.text for wish in remembering.store.memory.wishes()] == [WISH]


def test_no_key_reads_or_writes_the_preferences_of_another_named_key(start_gateway: StartGateway) -> None:
    gateway = start_gateway(memory=True, api_keys="ada=key-a,bob=key-b")
    gateway.says("hi")
    complain(gateway, ask(gateway, HELLO, key="key-a"))
    stranger = ask(gateway, key="key-b", user="ada")
    assert stranger.memory is None and WISH not in prompt(gateway, stranger)
    complain(gateway, stranger, OTHER)
    assert ask(gateway, key="key-a").memory == [WISH]
    assert ask(gateway, user="ada").memory is None  # the unnamed key


def test_without_the_flag_no_preference_is_remembered(gateway: RunningGateway) -> None:
    gateway.says("hi")
    complain(gateway, ask(gateway, HELLO, user="ada"))
    assert ask(gateway, user="ada").memory is None and gateway.store.memory.wishes() == []


def test_a_continued_conversation_keeps_its_ids_and_contains_each_preference_once(
    remembering: RunningGateway,
) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    remembering.says(CALL)
    first = ask(remembering, user="ada", tools=TOOLS)
    result = {"role": "tool", "content": "42", "tool_call_id": "x"}
    second = ask(remembering, [*LATER, first.response_message, result], user="ada", tools=TOOLS)
    sampled = first.prompt_ids + first.completion_ids
    assert second.render_mode == "bridge" and second.prompt_ids[: len(sampled)] == sampled
    assert second.memory == [WISH] and prompt(remembering, second).count(WISH) == 1
    complain(remembering, ask(remembering, HELLO, user="ada"), OTHER)
    asked = {"role": "user", "content": "and on"}
    history = [*LATER, first.response_message, result, second.response_message, asked]
    turn = ask(remembering, history, user="ada", tools=TOOLS)
    text = prompt(remembering, turn)
    assert turn.memory == [WISH, OTHER] and text.count(WISH) == 1 and text.count(OTHER) == 1
    assert text.index("and on") < text.index(OTHER)


def test_new_messages_add_only_preferences_missing_in_the_conversation() -> None:
    new, stand = inject([{"role": "user", "content": "go on"}], [WISH, OTHER], [WISH])
    assert new[0]["content"].endswith(f"go on\n\n{HINT_HEADER}\n{OTHER}") and stand == [WISH, OTHER]
    result = [{"role": "tool", "content": "3 files"}]
    assert inject(result, [WISH, OTHER], [WISH]) == (result, [WISH])


def test_a_preference_stated_in_the_conversation_is_not_repeated(remembering: RunningGateway) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    said = ask(remembering, [{"role": "user", "content": f"a new question. {WISH}"}], user="ada")
    assert prompt(remembering, said).count(WISH) == 1 and said.memory == []


def test_cached_ids_with_preferences_are_not_reused_for_prompts_without_them(
    remembering: RunningGateway,
) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    ask(remembering, user="ada")
    going_on = [*LATER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "go on"}]
    nobody = ask(remembering, going_on)
    assert WISH not in prompt(remembering, nobody)
    (wish,) = remembering.store.memory.wishes("ada")
    assert remembering.store.memory.forget(wish.id)
    assert WISH not in prompt(remembering, ask(remembering, going_on, user="ada"))


def test_remembered_preferences_never_make_a_prompt_too_long(start_gateway: StartGateway) -> None:
    gateway = start_gateway(memory=True, context_length=64)
    gateway.says("hi")
    complain(gateway, ask(gateway, HELLO, user="ada"), "x y z " * 40)
    turn = ask(gateway, user="ada")
    assert turn.memory == [] and len(turn.prompt_ids) < 64


def test_deleting_a_person_deletes_their_preferences(remembering: RunningGateway) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    remembering.store.deletion.delete_person("ada")
    assert remembering.store.memory.wishes() == []
    assert WISH not in prompt(remembering, ask(remembering, user="ada"))


def test_users_see_and_delete_their_preferences_and_administrators_all(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway(memory=True, api_keys="ada=key-a,bob=key-b")
    gateway.says("hi")
    complain(gateway, ask(gateway, HELLO, key="key-a"))
    ada, bob = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
    (wish,) = gateway.http.get("/v1/memory", headers=ada).json()["data"]
    assert (wish["text"], wish["in_prompt"], wish["held_by"]) == (WISH, True, None)
    assert gateway.http.get("/v1/memory", headers=bob).json()["data"] == []
    assert gateway.http.get("/v1/memory").status_code == 403
    assert gateway.http.delete(f"/v1/memory/{wish['id']}", headers=bob).status_code == 404
    assert gateway.http.get("/admin/memory?person=ada").json()["data"][0]["person"] == "ada"
    assert gateway.http.delete(f"/v1/memory/{wish['id']}", headers=ada).json()["forgotten"] is True
    assert gateway.http.delete(f"/admin/memory/{wish['id']}").status_code == 404
    assert gateway.http.delete("/admin/memory/²").status_code == 404
    assert ask(gateway, key="key-a").memory == []


def test_a_current_request_overrides_a_remembered_preference(remembering: RunningGateway) -> None:
    complain(remembering, ask(remembering, HELLO, user="ada"))
    complain(remembering, ask(remembering, HELLO, user="ada"), OTHER)
    as_list = [{"role": "user", "content": "What is there to see? As a list, please."}]
    turn = ask(remembering, as_list, user="ada")
    assert turn.memory == [OTHER] and WISH not in prompt(remembering, turn)
    assert ask(remembering, user="ada").memory == [WISH, OTHER]


@pytest.mark.parametrize("thinking", [True, False])
def test_a_remembered_preference_yields_to_a_later_explicit_request(
    remembering: RunningGateway, thinking: bool
) -> None:
    options = {"user": "ada", "chat_template_kwargs": {"enable_thinking": thinking}}
    complain(remembering, ask(remembering, HELLO, user="ada"))
    first = ask(remembering, **options)
    assert first.memory == [WISH]
    messages = [*LATER, {"role": "assistant", "content": "hi"}]
    plain = ask(remembering, [*messages, {"role": "user", "content": "And then?"}], **options)
    assert plain.memory == [WISH]
    as_list = [*messages, {"role": "user", "content": "And then? As a list, please."}]
    turn = ask(remembering, as_list, **options)
    assert turn.memory == [] and WISH not in prompt(remembering, turn)
    messages = [*as_list, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "And then?"}]
    assert ask(remembering, messages, **options).memory == []
