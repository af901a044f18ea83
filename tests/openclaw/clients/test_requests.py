"""Requests of the real clients (long texts shortened, ids replaced), sent to a gateway in this process.

Each conversation is "hello there", "RUN echo one" with its tool call and result, and "Thanks.". The result must be
one session with the client's housekeeping as side turns, and the next state of each turn in the words of the person
or the tool.
"""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from openclaw.common import messages
from openclaw.http.dialects import responses_tools
from tests.fakes.running_gateway import RunningGateway, StartGateway

REQUESTS = Path(__file__).parent / "requests"
RUNNERS = {
    "codex": ("exec_command", "cmd"),
    "claude": ("Bash", "command"),
    "opencode": ("bash", "command"),
    "hermes": ("terminal", "command"),
}
NAMED = {
    "codex": "00000000-0000-4000-8000-000000000005",
    "claude": "00000000-0000-4000-8000-000000000001",
    "opencode": "ses_0123456789abcdefABCDEFGHIJ",
}


@pytest.fixture
def gateway(start_gateway: StartGateway) -> Any:
    return start_gateway(served_model_name="tiny-claw")


def _requests(client: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((REQUESTS / f"{client}.json").read_text(encoding="utf-8"))
    return found


def _is_title(request: dict[str, Any]) -> bool:
    return not request["body"].get("tools")


def _ask(gateway: RunningGateway, request: dict[str, Any], says: str) -> Any:
    """Sends a request and returns the stored turn."""
    gateway.says(says)
    answer = gateway.http.post(request["path"], headers=request["headers"], json=request["body"])
    assert answer.status_code == 200, answer.text
    return gateway.wait_for(lambda: gateway.store.status.recent(1))[0]


def _answers(client: str) -> list[str]:
    """Returns the model's answers in the conversation, as the client sent them back."""
    name, argument = RUNNERS[client]
    arguments = {argument: "echo one", **({"description": "as asked"} if client == "opencode" else {})}
    result = {
        "codex": "Chunk ID: ed4ed6\nWall time: 0.0000 seconds\nProcess exited with code 0\nOriginal token count: 1\n"
        "Output:\none",
        "hermes": '{"output": "one", "exit_code": 0, "error": null}',
    }.get(client, "one")
    call = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    return ["You said: hello there", call, f"The tool answered: {result}", "You said: Thanks."]


@pytest.mark.parametrize("client", RUNNERS)
def test_a_clients_conversation_is_one_session_whose_turns_have_next_states(
    gateway: RunningGateway, client: str
) -> None:
    main = []
    answers = iter(_answers(client))
    for request in _requests(client):
        title = _is_title(request)
        status = _ask(gateway, request, "A title" if title else next(answers))
        assert status.turn_type == ("side" if title else "main")
        assert gateway.turn(status.completion_id).session_id == NAMED.get(client, status.session_id)
        main += [] if title else [status.completion_id]
    assert next(answers, None) is None
    gateway.wait_for(lambda: gateway.turn(main[-2]).next_state)
    turns = [gateway.turn(one) for one in main]
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.parent_id for turn in turns[1:]] == [turn.id for turn in turns[:-1]]
    said = [
        [(one["role"], str(one["content"]).strip('"\n')) for one in turn.next_state or []] for turn in turns
    ]
    assert said[0] == [("user", "RUN echo one")] and said[2] == [("user", "Thanks.")] and said[3] == []
    assert said[1][0][0] == "tool" and "one" in said[1][0][1] and len(said[1]) == 1
    assert all(turn.person is None for turn in turns)


@pytest.mark.parametrize(("client", "count"), [("codex", 0), ("claude", 1), ("opencode", 1), ("hermes", 0)])
def test_the_request_for_a_title_is_a_side_turn(gateway: RunningGateway, client: str, count: int) -> None:
    titles = [request for request in _requests(client) if _is_title(request)]
    assert len(titles) == count
    for request in titles:
        assert _ask(gateway, request, "A title").turn_type == "side"


@pytest.mark.parametrize(
    ("field", "value"), [("request_kind", "compaction"), ("thread_source", "memory_consolidation")]
)
def test_background_requests_of_codex_are_side_turns(gateway: RunningGateway, field: str, value: str) -> None:
    request = copy.deepcopy(_requests("codex")[0])
    metadata = json.loads(request["headers"]["x-codex-turn-metadata"])
    request["headers"]["x-codex-turn-metadata"] = json.dumps({**metadata, field: value})
    assert _ask(gateway, request, "hello").turn_type == "side"


@pytest.mark.parametrize(
    ("client", "header"),
    [
        ("codex", "x-openai-subagent"),
        ("claude", "x-claude-code-agent-id"),
        ("opencode", "x-parent-session-id"),
    ],
)
def test_a_turn_of_a_subagent_is_a_side_turn(gateway: RunningGateway, client: str, header: str) -> None:
    request = copy.deepcopy(_requests(client)[-1])
    request["headers"][header] = "one"
    assert _ask(gateway, request, "hello").turn_type == "side"


def test_codex_gets_namespaced_functions_and_calls_under_its_own_names(
    gateway: RunningGateway,
) -> None:
    request = _requests("codex")[0]
    arguments = {"name": "multi_agent_v1__close_agent", "arguments": {"target": "a"}}
    call = f"<tool_call>\n{json.dumps(arguments)}\n</tool_call>"
    gateway.says(call)
    events = gateway.http.post(request["path"], headers=request["headers"], json=request["body"]).text
    last = json.loads(events.strip().splitlines()[-1].removeprefix("data: "))["response"]
    (item,) = last["output"]
    assert item["namespace"] == "multi_agent_v1" and item["name"] == "close_agent"
    assert json.loads(item["arguments"]) == {"target": "a"}
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert "multi_agent_v1__close_agent" in prompt and "web_search" not in prompt
    following = copy.deepcopy(request)
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "closed"}
    following["body"]["input"] += [item, output]
    second = gateway.turn(_ask(gateway, following, "done").completion_id)
    assert second.parent_id == gateway.turn(last["id"]).id


def test_a_tool_that_only_openai_runs_is_omitted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    messages.warn_tool_left_out.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert responses_tools.chat_tools([{"type": "web_search"}]) == []
    (line,) = caplog.messages
    assert "'web_search'" in line


def test_a_signed_in_claude_code_account_is_the_person(gateway: RunningGateway) -> None:
    request = copy.deepcopy(_requests("claude")[1])
    user = {"device_id": "d", "account_uuid": "ada", "session_id": "s"}
    request["body"]["metadata"] = {"user_id": json.dumps(user)}
    assert gateway.turn(_ask(gateway, request, "hello").completion_id).person == "ada"


COMPLAINT = "That is wrong, please answer in one sentence."
TROUBLED = {
    "qwen": [
        "RUN echo one",
        "CUT touch never.txt",
        "Once more",
        f"Please go on with this one\n{COMPLAINT}",
    ],
    "opencode": ["CUT touch never.txt", COMPLAINT, "Thanks."],
    "hermes": ["CUT touch never.txt", COMPLAINT, "Thanks."],
    "aider": [COMPLAINT, "Thanks."],
}
"""What the person says after the first message. An unexecuted call, errors and repeated requests lie in between."""


@pytest.mark.parametrize("client", TROUBLED)
def test_a_persons_words_are_heard_after_cut_calls_and_errors(gateway: RunningGateway, client: str) -> None:
    main = []
    for request in _requests(f"troubles/{client}"):
        status = _ask(gateway, request, request["says"])
        assert (status.turn_type == "side") == request["side"], request["body"]["messages"][-1]
        main += [] if request["side"] else [status.completion_id]
    gateway.wait_for(lambda: gateway.turn(main[-2]).next_state)
    turns = [gateway.turn(one) for one in main]
    assert len({turn.session_id for turn in turns}) == 1
    following = [message for turn in turns for message in turn.next_state or []]
    assert [str(one["content"]).strip('"\n') for one in following if one["role"] == "user"] == TROUBLED[
        client
    ]
    assert [one["role"] for one in following if one["role"] != "user"] == ["tool"] * (client != "aider")
