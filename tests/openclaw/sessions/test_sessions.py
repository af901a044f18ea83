"""The turn that a request follows, found by its transcript despite changes by the client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openclaw.common.messages import PicturePart, prefix_keys
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.sessions import transcript
from openclaw.sessions.transcript import KnownHistories, Transcript, chained, next_state, same_answer
from openclaw.types import Message, Turn
from tests.fakes.running_gateway import RunningGateway, StartGateway

CONTEXT = (
    '<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nActive sessions:\n"none"\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>'
)
RUNTIME = "\n\nRuntime: agent=main | session=agent:main:x | sessionId=s1 | host=box | shell=bash"
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
TOOLS: list[Any] = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def user(text: object) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, **more: object) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def parts(texts: list[str]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def ask(
    gateway: RunningGateway, messages: list[Any], headers: dict[str, str] | None = None, **body: Any
) -> Any:
    answer = gateway.http.post(
        "/v1/chat/completions", json={"messages": messages, **body}, headers=headers or {}
    )
    assert answer.status_code == 200, answer.text
    return gateway.turn(answer.json()["id"])


def state(gateway: RunningGateway, turn: Turn) -> str:
    return str(gateway.store.turns.get(turn.id).state)


def answered(gateway: RunningGateway, turn: Turn) -> Any:
    """Returns the turn after its next state is stored."""
    gateway.wait_for(lambda: state(gateway, turn) == "answered")
    return gateway.store.turns.get(turn.id)


def test_histories_with_other_pictures_differ_and_judges_see_a_placeholder() -> None:
    cat, dog = (PicturePart(name * 32, "image/png", 40, 30) for name in ("ca", "d0"))
    text = {"type": "text", "text": "What is this?"}
    histories = [[user([text, picture])] for picture in (cat, dog)] + [[user("What is this?")]]
    assert len({Transcript.of(messages).digest for messages in histories}) == 3
    assert Transcript.of(histories[0]).digest == Transcript.of([user([text, dict(cat)])]).digest
    messages = [user("Draw."), assistant("Done."), user([cat])]
    assert next_state(messages, 2) == [{"role": "user", "content": "[picture]"}]


def test_the_next_request_is_the_next_state_of_the_previous_turn(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")])
    second = ask(gateway, [user("hi"), assistant("hello there"), user("no, shorter")])
    assert (second.session_id, second.parent_id, second.turn_index) == (first.session_id, first.id, 1)
    assert answered(gateway, first).next_state == [user("no, shorter")]
    assert state(gateway, second) == "captured"


@pytest.mark.parametrize(("texts", "score"), [(["That is", "wrong"], -1), (["Great", "thanks"], 1)])
def test_text_parts_reach_the_judge_as_separate_words(texts: list[str], score: int) -> None:
    followed = next_state([user("what is 2 + 2?"), assistant("5"), user(parts(texts))], 2)
    question = JudgeQuestion(
        response="5", next_state=followed, role="user", messages=[user("what is 2 + 2?")]
    )
    assert vote_by_rules(question).score == score


@pytest.mark.parametrize("route", ["chat/completions", "messages", "responses"])
def test_text_parts_are_joined_for_the_model_and_separate_lines_for_the_judge(
    gateway: RunningGateway, route: str
) -> None:
    gateway.says("5")
    first = ask(gateway, [user("what is 2 + 2?")])
    name = "input" if route == "responses" else "messages"
    for said in (parts(["That is", "wrong"]), "That iswrong"):
        if route == "responses" and isinstance(said, list):
            said = [{**part, "type": "input_text"} for part in said]
        body = {name: [user("what is 2 + 2?"), assistant("5"), user(said)], "max_tokens": 50}
        answer = gateway.http.post(f"/v1/{route}", json=body)
        assert answer.status_code == 200, answer.text
    apart, together = (request["input_ids"] for request in gateway.engine.requests[1:])
    assert apart == together
    assert answered(gateway, first).next_state[-1]["content"] == "That is\nwrong"


def test_openclaw_noise_does_not_hide_the_parent(gateway: RunningGateway) -> None:
    gateway.says(f"reading\n{CALL}")
    stamp = "[Sat 2026-11-21 02:31 UTC] "
    first = ask(
        gateway, [user(stamp + "read it" + RUNTIME), user([{"type": "text", "text": CONTEXT}])], tools=TOOLS
    )
    gateway.says("done")
    call = {
        "id": "callread1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path":"a.txt"}'},
    }
    history = [
        {"role": "system", "content": "another system prompt"},
        user([{"type": "text", "text": stamp + "read it" + RUNTIME}]),
        assistant("reading", tool_calls=[call], reasoning_content="whatever"),
        {"role": "tool", "content": "42", "tool_call_id": "callread1"},
    ]
    second = ask(gateway, [*history, user([{"type": "text", "text": CONTEXT}])], tools=TOOLS)
    assert second.parent_id == first.id
    assert answered(gateway, first).next_state == [history[-1]]
    third = ask(gateway, [*history, assistant("done"), user(stamp + "thanks"), user(CONTEXT)], tools=TOOLS)
    assert third.parent_id == second.id
    assert answered(gateway, second).next_state == [user("thanks")]


def test_several_tool_results_are_one_next_state(gateway: RunningGateway) -> None:
    gateway.says(f"{CALL}\n{CALL}")
    first = ask(gateway, [user("read both")], tools=TOOLS)
    results = [{"role": "tool", "content": text, "tool_call_id": text} for text in ("a", "b")]
    ask(gateway, [user("read both"), first.response_message, *results], tools=TOOLS)
    assert answered(gateway, first).next_state == results


def test_a_retry_is_not_a_next_state_and_creates_no_second_turn(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")], headers={"X-Session-Id": "s"})
    again = ask(gateway, [user("hi")], headers={"X-Session-Id": "s"})
    assert (state(gateway, first), state(gateway, again)) == ("captured", "captured")
    history = [user("hi"), assistant("hello there")]
    for wish in ("shorter", "shorter", "longer"):
        ask(gateway, [*history, user(wish)], headers={"X-Session-Id": "s"})
    assert answered(gateway, again).next_state == [user("shorter")]
    assert gateway.store.status.counts()["turns"] == {"captured": 4, "answered": 1}


def test_a_session_id_narrows_the_parent_search_and_is_stored(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    one = ask(gateway, [user("hi")], headers={"X-Session-Id": "one"})
    two = ask(gateway, [user("hi")], session_id="two")
    history = [user("hi"), assistant("hello there"), user("go on")]
    assert ask(gateway, history, headers={"X-Session-Id": "one"}).parent_id == one.id
    assert ask(gateway, history, session_id="two").parent_id == two.id
    assert ask(gateway, history, session_id="three").parent_id is None
    assert (
        gateway.http.post("/sessions/four/v1/chat/completions", json={"messages": history}).json()[
            "session_id"
        ]
        == "four"
    )


def test_affinity_headers_of_openclaw_name_the_session(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    assert ask(gateway, [user("hi")], prompt_cache_key="s1:0").session_id == "s1"
    assert ask(gateway, [user("hi")], headers={"x-session-affinity": "s2:3"}).session_id == "s2"


def test_new_conversation_in_an_old_session_has_no_parent(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")], session_id="s")
    fresh = ask(gateway, [user("something else")], session_id="s")
    assert (fresh.parent_id, fresh.turn_index) == (None, 1)
    assert state(gateway, first) == "captured"


def test_clients_without_ids_share_no_session(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    sessions = {ask(gateway, [user(f"hi {name}")]).session_id for name in "abc"}
    assert len(sessions) == 3


def test_side_turns_are_served_and_are_no_next_states(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")])
    history = [user("hi"), assistant("hello there")]
    flush = [*history, user("Pre-compaction memory flush. Store memories.")]
    assert state(gateway, ask(gateway, flush)) == "side"
    assert state(gateway, ask(gateway, [*history, user("x")], headers={"X-Turn-Type": "side"})) == "side"
    assert state(gateway, ask(gateway, [*history, user("x")], turn_type="side")) == "side"
    assert state(gateway, first) == "captured"


def test_default_turn_type_is_for_requests_that_name_none(start_gateway: StartGateway) -> None:
    gateway = start_gateway(default_turn_type="side")
    gateway.says("hello there")
    assert state(gateway, ask(gateway, [user("hi")])) == "side"
    assert state(gateway, ask(gateway, [user("hi")], turn_type="main")) == "captured"


@pytest.mark.parametrize(("headers", "body"), [({"X-Train": "off"}, {}), ({}, {"train": False})])
def test_a_private_request_is_served_without_storing_anything(
    gateway: RunningGateway, headers: dict[str, str], body: dict[str, Any]
) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")])
    history = [user("hi"), assistant("hello there"), user("a secret")]
    answer = gateway.http.post("/v1/chat/completions", json={"messages": history, **body}, headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "hello there"
    assert gateway.store.status.counts()["turns"] == {"captured": 1}
    assert state(gateway, first) == "captured"


def test_a_session_ends_with_its_last_turn_or_on_request(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")], session_id="s")
    assert state(gateway, first) == "captured"
    done = gateway.http.post("/v1/chat/completions", json={"session_id": "s", "session_done": True})
    assert done.json()["session_done"] is True and state(gateway, first) == "expired"
    ping = {"messages": [user(".")], "max_tokens": 1}
    last = ask(gateway, [user("hi")], session_id="t")
    gateway.http.post(
        "/v1/chat/completions",
        json=ping,
        headers={"X-Session-Id": "t", "X-Session-Done": "1", "X-Turn-Type": "side"},
    )
    assert state(gateway, last) == "expired" and gateway.store.sessions.get("t").ended_at
    private = ask(gateway, [user("hi")], session_id="p")
    gateway.http.post(
        "/v1/chat/completions", json={**ping, "session_id": "p", "session_done": True, "train": False}
    )
    assert state(gateway, private) == "expired"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temperature": 0}, "greedy"),
        ({"frequency_penalty": 0.5}, "penalties"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "grammar"),
    ],
)
def test_untrainable_turns_have_a_reason_and_are_still_judged(
    gateway: RunningGateway, options: dict[str, Any], reason: str
) -> None:
    gateway.says("hello there")
    turn = ask(gateway, [user("hi")], **options)
    assert (str(turn.state), turn.unsampled) == ("captured", reason)
    ask(gateway, [user("hi"), assistant("hello there"), user("Too long!")])
    assert gateway.wait_for(lambda: gateway.turn(turn.completion_id).state == "answered")


def test_a_minimum_temperature_raises_lower_ones_of_clients(start_gateway: StartGateway) -> None:
    gateway = start_gateway(min_temperature=0.3)
    gateway.says("hello there")
    for sent, got in ((0, 0.3), (0.2, 0.3), (0.9, 0.9)):
        turn = ask(gateway, [user("hi")], temperature=sent)
        assert gateway.engine.requests[-1]["sampling_params"]["temperature"] == got
        assert turn.sampling["temperature"] == turn.temperature == got and turn.unsampled is None


def test_tool_results_continue_the_sampled_ids(gateway: RunningGateway) -> None:
    tokenizer = gateway.tokenizer
    spelled = [tokenizer.encode(letter)[0] for letter in "see "]
    gateway.engine.say = [*spelled, *tokenizer.encode(CALL), tokenizer.token_id("<|im_end|>")]
    first = ask(gateway, [user("read it")], tools=TOOLS)
    result = {"role": "tool", "content": "42", "tool_call_id": "x"}
    second = ask(gateway, [user("read it"), first.response_message, result], tools=TOOLS)
    sampled = first.prompt_ids + first.completion_ids
    assert second.render_mode == "bridge" and second.prompt_ids[: len(sampled)] == sampled
    third = ask(
        gateway, [user("read it"), {**first.response_message, "content": "edited"}, result], tools=TOOLS
    )
    assert third.render_mode == "full"


def test_parallel_requests_of_one_session_are_separate_turns(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")], session_id="s")
    history = [user("hi"), assistant("hello there")]
    with ThreadPoolExecutor(8) as pool:
        turns = list(pool.map(lambda n: ask(gateway, [*history, user(f"go {n}")], session_id="s"), range(8)))
    assert {turn.parent_id for turn in turns} == {first.id}
    assert sorted(turn.turn_index for turn in turns) == list(range(1, 9))
    assert answered(gateway, first).next_state[0]["content"].startswith("go ")


def test_the_person_is_stored_and_does_not_define_the_session(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    turns = [ask(gateway, [user("hi")], user="ada") for _ in range(2)]
    assert {turn.person for turn in turns} == {"ada"} and turns[0].session_id != turns[1].session_id


def test_a_turns_digest_is_found_in_the_next_request() -> None:
    answer = assistant(
        "fine", tool_calls=[{"id": "1", "function": {"name": "f", "arguments": '{"b":1, "a":2}'}}]
    )
    digest = Transcript.of([user("how?")]).with_answer(answer)
    again = assistant(
        " fine\n", tool_calls=[{"id": "2", "function": {"name": "f", "arguments": {"a": 2, "b": 1}}}]
    )
    later = Transcript.of([{"role": "system", "content": "x"}, user("how?"), again, user("ok")])
    assert later.answers == ((digest, 3),)


@pytest.mark.parametrize(
    "sent_back", ["One.\nTwo.\n\nThree.", "One.\n\n\n\nTwo.\nThree.", "One.  \r\n \r\nTwo.\nThree."]
)
def test_a_client_that_changes_blank_lines_still_follows_the_turn(sent_back: str) -> None:
    asked = {"role": "user", "content": "Count."}
    answer = {"role": "assistant", "content": "One.\n\nTwo.\n\n\nThree."}
    turn = Transcript.of([asked]).with_answer(answer)
    changed = {"role": "assistant", "content": sent_back}
    later = Transcript.of([asked, changed, {"role": "user", "content": "Thanks!"}])
    assert later.answers == ((turn, 2),)
    assert same_answer(answer, changed) and not same_answer(answer, changed, to_the_letter=True)
    assert not same_answer(answer, {"role": "assistant", "content": "One. Two. Three."})


def test_cached_histories_have_the_digests_of_uncached_ones() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": '{"a":1}'}}]
    talk: list[dict[str, Any]] = [{"role": "system", "content": "x"}, user(CONTEXT), user("how?")]
    talk += [assistant("", tool_calls=calls), {"role": "tool", "content": "1"}, user(" "), assistant("ok")]
    known = KnownHistories(kept=5)

    def cached(history: list[dict[str, Any]]) -> Transcript:
        keys = prefix_keys(history)
        return known.transcript(history, keys, known.known(keys))

    for end in (*range(1, len(talk) + 1), *range(len(talk), 0, -1)):
        beyond_json = [*talk[:end], {"role": "user", "content": "n", "n": 1 << 80}]
        for history in (talk[:end], talk[1 : end + 1], [*talk[:end], user(CONTEXT)], beyond_json):
            assert cached(history) == Transcript.of(history)


def test_only_what_is_new_in_a_history_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noting(digest: bytes, message: Message) -> bytes:
        read.append(message["content"])
        return chained(digest, message)

    monkeypatch.setattr(transcript, "chained", noting)
    known, talk, moving = KnownHistories(), [user("how?")], user(CONTEXT)
    for n in range(3):
        history, read[:] = [*talk, moving], []
        keys = prefix_keys(history)
        known.transcript(history, keys, known.known(keys))
        assert read == [*(["how?"] if n == 0 else [f"so {n - 1}", f"and {n - 1}?"]), CONTEXT]
        talk += [assistant(f"so {n}"), user(f"and {n}?")]


def test_the_least_recent_transcripts_are_dropped() -> None:
    known = KnownHistories(kept=6)
    talks = [[user(f"{n}"), assistant("so")] for n in range(4)]
    for talk in talks:
        keys = prefix_keys(talk)
        known.transcript(talk, keys, known.known(keys))
    assert [known.known(prefix_keys(talk))[0] for talk in talks] == [0, 0, 2, 2]


def test_next_state_ends_at_the_next_answer() -> None:
    messages = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
    assert next_state(messages, 2) == [user("c")]
    assert next_state([user("a"), assistant("b"), user(CONTEXT)], 2) == []


def test_runtime_line_of_openclaw_names_the_session(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("[Sat 2026-11-21 02:31 UTC] hi" + RUNTIME)])
    assert first.session_id == "s1"
    parts = [{"type": "text", "text": "a <summary/>"}, {"type": "text", "text": RUNTIME.strip()}]
    assert ask(gateway, [user(parts)]).session_id == "s1"
    assert ask(gateway, [user("look: Runtime: agent=x | sessionId=s1\nwhat is it?")]).session_id != "s1"


def test_counted_request_id_names_the_session_and_a_bare_one_does_not(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    assert ask(gateway, [user("hi")], headers={"x-client-request-id": "s3:1"}).session_id == "s3"
    assert ask(gateway, [user("hi")], headers={"x-client-request-id": "5f0c-11"}).session_id != "5f0c-11"
    assert ask(gateway, [user("hi")], headers={"session_id": "s4:12"}).session_id == "s4"


def test_compacted_history_still_answers_the_last_turn(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("a long story")], session_id="s")
    summary = "The conversation history before this point was compacted: <summary>a story</summary>"
    second = ask(gateway, [user(summary), assistant("hello there"), user("and then?")], session_id="s")
    assert (second.parent_id, second.render_mode) == (first.id, "full")
    assert answered(gateway, first).next_state == [user("and then?")]
    other = [user(summary), assistant("never said"), user("and then?")]
    assert ask(gateway, other, session_id="s").parent_id is None


def test_rewritten_retry_of_openclaw_is_the_same_request(gateway: RunningGateway) -> None:
    stamp = "[Sat 2026-11-21 02:28 UTC] "
    first = [user(stamp + "tell me" + RUNTIME)]
    wrapped = (
        "[Queued user message from a previous active turn; preserved as context only.]\ntell me\n\nContinue the "
        "current task from the existing transcript, preserving completed work. Do not restart the task."
    )
    again = [user("[Sat 2026-11-21 02:29 UTC] " + wrapped + RUNTIME)]
    assert Transcript.of(first).digest == Transcript.of(again).digest != Transcript.of([]).digest
    gateway.says("hello there")
    turn = ask(gateway, again)
    follow = ask(gateway, [*first, assistant("hello there"), user("thanks")])
    assert follow.parent_id == turn.id


def test_a_fork_gets_its_next_state_from_the_first_follow_up_and_both_branches_continue(
    gateway: RunningGateway,
) -> None:
    gateway.says("hello there")
    first = ask(gateway, [user("hi")])
    history = [user("hi"), assistant("hello there")]
    gateway.says("the answer")
    left, right = (ask(gateway, [*history, user(wish)]) for wish in ("left", "right"))
    assert answered(gateway, first).next_state == [user("left")]
    for turn, wish in ((left, "left"), (right, "right")):
        ask(gateway, [*history, user(wish), assistant("the answer"), user(f"on, {wish}")])
        assert answered(gateway, turn).next_state == [user(f"on, {wish}")]


def test_equal_conversations_of_two_people_stay_separate(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    ada, bob = (ask(gateway, [user("hi")], user=name) for name in ("ada", "bob"))
    history = [user("hi"), assistant("hello there"), user("go on")]
    assert ask(gateway, history, user="ada").parent_id == ada.id
    assert ask(gateway, history, user="bob").parent_id == bob.id


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "You are a context summarization assistant. Be brief."}, user("x")],
        [user("[Sat 2026-11-21 02:31 UTC] [Subagent Context] You are a subagent." + RUNTIME), user(CONTEXT)],
        [user("Follow the heartbeat monitor scratch context." + RUNTIME), user(CONTEXT)],
        [user("[cron:5a41 garden] look after the garden" + RUNTIME), user(CONTEXT)],
        [
            user("hi"),
            assistant("x"),
            user("[Mon 2026-01-05 09:00 GMT+2] A background task completed. Use it."),
        ],
    ],
)
def test_openclaws_housekeeping_is_a_side_turn_without_the_plug_in(
    gateway: RunningGateway, messages: list[Any]
) -> None:
    gateway.says("hello there")
    assert state(gateway, ask(gateway, messages)) == "side"
