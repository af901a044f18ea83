"""Calls that are cut off or malformed reach clients as text, in every dialect, and their turns stay in the session."""

from __future__ import annotations

import random
from typing import Any

import pytest

from openclaw.http import response
from tests.fakes.running_gateway import RunningGateway
from tests.openclaw.http.dialects import CALLED, CUT, DIALECTS, STOPPED

HELLO: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
SOUND = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
UNSOUND = {
    "the end comes inside the arguments": SOUND[:55],
    "the end comes before the closing marker": SOUND.removesuffix("</tool_call>"),
    "arguments are no JSON": SOUND.replace('"Paris"', "Paris"),
    "arguments are a list": SOUND.replace('{"city": "Paris"}', '["Paris"]'),
    "a brace is missing": SOUND.replace("}}", "}"),
    "a brace is too many": SOUND.replace("}}", "}}}"),
    "there is no such tool": SOUND.replace("weather", "search"),
    "there is no name": SOUND.replace('"name": "weather", ', ""),
    "the call is empty": "<tool_call></tool_call>",
    "one call is inside another": "<tool_call>" + SOUND,
}
everywhere = pytest.mark.parametrize("dialect", DIALECTS)
either_way = pytest.mark.parametrize("stream", [False, True])


def folded(text: str) -> str:
    return "".join(text.split())


@everywhere
@either_way
def test_an_invalid_call_is_text_and_its_feedback_counts(
    gateway: RunningGateway, dialect: str, stream: bool
) -> None:
    ask = DIALECTS[dialect]
    gateway.engine.chunk = 1
    for number, written in enumerate(UNSOUND.values()):
        talk = [{"role": "user", "content": f"What is the weather in Paris on day {number}?"}]
        gateway.says(f"Let me see.\n{written}")
        answer = ask(gateway, talk, stream)
        assert answer.calls == [] and answer.reason == STOPPED[dialect]
        assert folded(answer.text) == folded(f"Let me see.\n{written}")
        gateway.says("Sorry.")
        talk = [*talk, *answer.back, {"role": "user", "content": "That is wrong."}]
        after = ask(gateway, talk, stream)
        assert gateway.turn(after.id).parent_id == gateway.turn(answer.id).id


@everywhere
@either_way
def test_a_truncated_call_is_text_and_the_finish_reason_is_length(
    gateway: RunningGateway, dialect: str, stream: bool
) -> None:
    for missing in (2, 5, 9):
        limit = len(gateway.says(SOUND)) - missing
        answer = DIALECTS[dialect](gateway, HELLO, stream, most=limit)
        assert answer.calls == [] and answer.reason == CUT[dialect] and answer.text.startswith("<tool_call>")


@everywhere
@either_way
def test_a_required_call_that_is_missing_is_reported(
    gateway: RunningGateway, dialect: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    response._warn_unfulfilled.cache_clear()
    ask = DIALECTS[dialect]
    gateway.says(' {"city": Paris')
    answer = ask(gateway, HELLO, stream, forced="weather")
    assert answer.calls == [] and not answer.fulfilled and answer.reason == STOPPED[dialect]
    assert folded(answer.text) == '<tool_call>{"name":"weather","arguments":{"city":Paris'
    assert "required a call of weather" in caplog.text
    gateway.says("Sorry.")
    after = ask(gateway, [*HELLO, *answer.back, {"role": "user", "content": "No!"}], stream)
    assert gateway.turn(after.id).parent_id == gateway.turn(answer.id).id and after.fulfilled
    gateway.says(' {"city": "Paris"}}\n</tool_call>')
    called = ask(gateway, HELLO, stream, forced="weather")
    assert called.calls == [("weather", {"city": "Paris"})] and called.fulfilled
    assert called.reason == CALLED[dialect]


@everywhere
@either_way
def test_only_the_valid_ones_of_several_calls_are_returned_as_calls(
    gateway: RunningGateway, dialect: str, stream: bool
) -> None:
    second = SOUND.replace("weather", "time")
    gateway.says(f"{SOUND}\n{SOUND[:60]}</tool_call> then\n{second}")
    answer = DIALECTS[dialect](gateway, HELLO, stream)
    assert answer.calls == [("weather", {"city": "Paris"}), ("time", {"city": "Paris"})]
    assert folded(answer.text) == folded(f"{SOUND[:60]}</tool_call> then")
    assert answer.reason == CALLED[dialect]
    gateway.says("Sorry.")
    after = DIALECTS[dialect](gateway, [*HELLO, *answer.back, {"role": "user", "content": "No!"}], stream)
    assert gateway.turn(after.id).parent_id == gateway.turn(answer.id).id


@everywhere
def test_no_random_mutation_of_a_call_reaches_a_client_as_an_invalid_call(
    gateway: RunningGateway, dialect: str
) -> None:
    chance = random.Random(7)
    for number in range(12):
        text = list(SOUND)
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 2)] = chance.choice(
                ['"', "}", "{", "\\", ",", "7", "\n", "é", ""]
            )
        written = "".join(text)
        gateway.says(written)
        gateway.engine.chunk = chance.choice([1, 4, 1000])
        answer = DIALECTS[dialect](gateway, HELLO, number % 2 == 0)
        for name, arguments in answer.calls:
            assert name in ("weather", "time") and isinstance(arguments, dict)
        if not answer.calls:
            assert folded(answer.text) == folded(written)


@everywhere
def test_a_stream_with_a_buffered_call_continues_sending_events(
    gateway: RunningGateway, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "QUIET_SECONDS", 0.0)
    gateway.says(SOUND)
    gateway.engine.chunk = 1
    answer = DIALECTS[dialect](gateway, HELLO, True)
    assert answer.calls == [("weather", {"city": "Paris"})] and answer.text == ""
