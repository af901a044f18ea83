"""An unsupported item never ends a conversation: tool runs of a client are translated, the rest becomes a note."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from openclaw.common import messages
from openclaw.common.messages import note, without_notes
from tests.fakes.running_gateway import RunningGateway
from tests.openclaw.http.dialects import MODEL

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
PLAIN = {
    "type": "document",
    "title": "Prices",
    "source": {"type": "text", "media_type": "text/plain", "data": "1 euro"},
}
FOUND = {
    "type": "search_result",
    "source": "https://a.example",
    "title": "A",
    "content": [{"type": "text", "text": "b"}],
}
USED: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}


def left_out(kind: str) -> str:
    return note(kind)


def result(content: Any) -> list[Any]:
    return [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": [USED]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": content}]},
    ]


CHAT: dict[str, tuple[list[Any], str]] = {
    "a picture": (
        [{"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]}],
        left_out("image_url"),
    ),
    "a sound": (
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
        left_out("input_audio"),
    ),
    "a file": ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}], left_out("file")),
    "a picture in a result": (
        [
            {"role": "user", "content": "look"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": [PICTURE]},
        ],
        left_out("image_url"),
    ),
    "a custom call": (
        [
            {"role": "user", "content": "patch"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ],
        '{"name": "patch", "arguments": {"input": "*** Begin"}}',
    ),
}
MESSAGES: dict[str, tuple[list[Any], str]] = {
    "a picture": ([{"role": "user", "content": [IMAGE, {"type": "text", "text": "See"}]}], left_out("image")),
    "a picture in a result": (result([{"type": "text", "text": "ok"}, IMAGE]), left_out("image")),
    "a PDF": ([{"role": "user", "content": [PDF]}], left_out("document")),
    "a plain document": ([{"role": "user", "content": [PLAIN]}], "Prices\n1 euro"),
    "search results": (result([FOUND]), "A\nhttps://a.example\nb"),
    "a search of another server": (
        [
            {"role": "user", "content": "search"},
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    {"type": "text", "text": "Found."},
                ],
            },
            {"role": "user", "content": "and?"},
        ],
        left_out("web_search_tool_result") + "Found.",
    ),
    "what nobody knows yet": ([{"role": "user", "content": [{"type": "hologram"}]}], left_out("hologram")),
    "a call whose input was cut": (
        [result("x")[0], {"role": "assistant", "content": [{**USED, "input": ""}]}, result("x")[2]],
        '{"name": "read", "arguments": {}}',
    ),
}
RESPONSES: dict[str, tuple[list[Any], str]] = {
    "a picture": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}],
        left_out("input_image"),
    ),
    "a file": (
        [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
        left_out("input_file"),
    ),
    "a custom call": (
        [
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "Success."},
        ],
        '{"name": "apply_patch", "arguments": {"input": "*** Begin"}}',
    ),
    "a shell call": (
        [
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
        ],
        '"command": ["ls"]',
    ),
    "a result of a shell": (
        [
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.txt", "stderr": ""}]},
        ],
        '"stdout": "a.txt"',
    ),
    "a call of MCP with its result": (
        [
            {
                "type": "mcp_call",
                "id": "m",
                "server_label": "s",
                "name": "ask",
                "arguments": '{"q": 1}',
                "output": "42",
            }
        ],
        '{"name": "ask", "arguments": {"q": 1}}',
    ),
    "a picture in a result": (
        [
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": "data:"}],
            },
        ],
        left_out("input_image"),
    ),
    "a screenshot": (
        [
            {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
            {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
        ],
        left_out("computer_screenshot"),
    ),
    **{
        kind: (
            [{"type": kind, "id": "x", "status": "completed"}, {"role": "user", "content": "and?"}],
            left_out(kind),
        )
        for kind in (
            "web_search_call",
            "file_search_call",
            "code_interpreter_call",
            "image_generation_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "compaction",
            "item_reference",
            "hologram",
        )
    },
}
CASES = [
    *((f"chat: {name}", "chat/completions", "messages", *case) for name, case in CHAT.items()),
    *((f"messages: {name}", "messages", "messages", *case) for name, case in MESSAGES.items()),
    *((f"responses: {name}", "responses", "input", *case) for name, case in RESPONSES.items()),
]


def send(gateway: RunningGateway, route: str, **body: Any) -> Any:
    asked = {"model": MODEL, "max_tokens": 50, **body}
    return gateway.http.post(f"/v1/{route}", json=asked)


def test_unsupported_items_are_translated_or_become_notes(gateway: RunningGateway) -> None:
    gateway.says("Yes.")
    for name, route, field, talk, shown in CASES:
        answer = send(gateway, route, **{field: talk})
        assert answer.status_code == 200, (name, answer.text)
        prompt = gateway.tokenizer.decode(gateway.engine.requests[-1]["input_ids"])
        assert shown in prompt, (name, prompt)


def test_notes_do_not_split_the_conversation_or_count_as_user_text(gateway: RunningGateway) -> None:
    gateway.says("A cat.")
    talk: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]}]
    first = send(gateway, "chat/completions", messages=talk).json()["id"]
    talk += [{"role": "assistant", "content": "A cat."}]
    talk += [{"role": "user", "content": [PICTURE, {"type": "text", "text": "That is wrong."}]}]
    second = send(gateway, "chat/completions", messages=talk).json()["id"]
    assert gateway.turn(second).parent_id == gateway.turn(first).id
    followed = gateway.wait_for(lambda: gateway.turn(first).next_state)
    assert followed == [{"role": "user", "content": "That is wrong."}]


def test_references_to_stored_answers_are_resolved(gateway: RunningGateway) -> None:
    tools = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]
    gateway.says(
        '<think>\nso\n</think>\n\nlook\n<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    )
    start = {"role": "user", "content": "hi"}
    first = send(gateway, "responses", input=[start], tools=tools).json()
    ids = [item["id"] for item in first["output"]]
    assert [item.partition("_")[0] for item in ids] == ["rs", "msg", "fc"]
    output = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "42"}
    again = [start, *({"type": "item_reference", "id": one} for one in ids), output]
    second = send(gateway, "responses", input=again, tools=tools).json()
    assert gateway.turn(second["id"]).parent_id == gateway.turn(first["id"]).id
    assert gateway.turn(second["id"]).messages[1] == gateway.turn(first["id"]).response_message
    strange = [
        start,
        {"type": "item_reference", "id": "fc_x_99999"},
        {"type": "item_reference", "id": "msg_"},
    ]
    assert send(gateway, "responses", input=strange, tools=tools).status_code == 200


def test_tools_without_a_client_implementation_are_not_offered(gateway: RunningGateway) -> None:
    gateway.says("Yes.")
    talk = [{"role": "user", "content": "hi"}]
    for route, field, tool in (
        ("chat/completions", "messages", {"type": "web_search"}),
        ("chat/completions", "messages", {"type": "custom", "custom": {"name": "patch"}}),
        ("messages", "messages", {"type": "bash_20250124", "name": "bash"}),
        ("responses", "input", {"type": "web_search"}),
    ):
        answer = send(gateway, route, **{field: talk, "tools": [tool]})
        assert answer.status_code == 200, answer.text
        assert "# Tools" not in gateway.tokenizer.decode(gateway.engine.requests[-1]["input_ids"])


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": ["x"]}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"image_url": {}}]}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": 5}]}]}),
        ("responses", {"input": [{"role": "user", "content": [5]}]}),
        ("responses", {"input": [{"type": 5}]}),
        ("responses", {"input": [{"type": "function_call", "name": 5}]}),
    ],
)
def test_invalid_items_are_rejected(gateway: RunningGateway, route: str, body: dict[str, Any]) -> None:
    assert send(gateway, route, **body).status_code == 400


def test_each_unknown_kind_is_logged_once_with_an_escaped_name(caplog: pytest.LogCaptureFixture) -> None:
    messages._warn_left_out.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert without_notes(f"{note('image')}\nThat is wrong. {note('image')}") == "That is wrong. "
        odd = note("x]\n<|im_end|>" * 20)
    assert len(odd) < 100 and "<" not in odd and "\n" not in odd and without_notes(odd) == ""
    assert caplog.text.count("'image'") == 1
