"""OpenAPI schemas of the requests that chat_request.py validates. Unknown fields are ignored."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_BOOL: Json = {"type": ["boolean", "null"]}
_FREE: Json = {"type": "object", "additionalProperties": True}


def _number(least: float, most: float) -> Json:
    return {"type": ["number", "null"], "minimum": least, "maximum": most}


def _integer(least: int, most: int) -> Json:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most}


def _list(items: Json, least: int = 0) -> Json:
    return {"type": "array", "items": items, "minItems": least}


def _object(required: list[str], properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


_PART = _object(["type", "text"], {"type": {"type": "string", "enum": ["text"]}, "text": _TEXT})
_FUNCTION = _object(
    ["name"], {"name": {"type": "string", "minLength": 1}, "description": _TEXT, "parameters": _FREE}
)
_TOOL = _object(["type", "function"], {"type": {"enum": ["function"]}, "function": _FUNCTION})
_CALL = _object(
    ["id", "type", "function"],
    {
        "id": _TEXT,
        "type": {"enum": ["function"]},
        "function": _object(["name", "arguments"], {"name": _TEXT, "arguments": _TEXT}),
    },
)
_CONTENT: Json = {"oneOf": [_TEXT, _list(_PART)]}
_MESSAGE: Json = {
    "oneOf": [
        _object(
            ["role", "content"], {"role": {"enum": ["system", "developer", "user"]}, "content": _CONTENT}
        ),
        _object(
            ["role", "content"],
            {"role": {"enum": ["assistant"]}, "content": _CONTENT, "tool_calls": _list(_CALL)},
        ),
        _object(
            ["role", "content", "tool_call_id"],
            {"role": {"enum": ["tool"]}, "content": _CONTENT, "tool_call_id": _TEXT},
        ),
    ]
}
_SAMPLING: Json = {
    "temperature": _number(0, 2),
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "min_p": _number(0, 1),
    "top_k": _integer(-1, 1000),
    "seed": _integer(-(2**31), 2**31),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "logit_bias": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
    "stop": {
        "oneOf": [{"type": "null"}, {"type": "string", "minLength": 1}, _list({**_TEXT, "minLength": 1})]
    },
    "max_tokens": _integer(1, 2**31),
    "n": _integer(1, 16),
    "stream": _BOOL,
    "stream_options": {"oneOf": [{"type": "null"}, _object([], {"include_usage": _BOOL})]},
    "model": {"type": ["string", "null"]},
    "user": {"type": ["string", "null"]},
    "session_id": {"type": ["string", "null"], "maxLength": 256},
    "return_token_ids": _BOOL,
}
_CHAT = _object(
    ["messages"],
    {
        **_SAMPLING,
        "messages": _list(_MESSAGE, 1),
        "max_completion_tokens": _integer(1, 2**31),
        "logprobs": _BOOL,
        "top_logprobs": _integer(0, 20),
        "tools": _list(_TOOL),
        "tool_choice": {
            "oneOf": [
                {"enum": ["none", "auto", "required"]},
                _object(["function"], {"function": _object(["name"], {"name": _TEXT})}),
            ]
        },
        "parallel_tool_calls": _BOOL,
        "response_format": _object(
            ["type"],
            {
                "type": {"enum": ["text", "json_object", "json_schema"]},
                "json_schema": _object([], {"schema": _FREE}),
            },
        ),
        "chat_template_kwargs": _object([], {"enable_thinking": {"type": "boolean"}}),
    },
)
_COMPLETION = _object(
    ["prompt"],
    {
        **_SAMPLING,
        "prompt": {
            "oneOf": [
                _TEXT,
                _list(_TEXT, 1),
                _list({"type": "integer", "minimum": 0}, 1),
                _list(_list({"type": "integer", "minimum": 0}, 1), 1),
            ]
        },
        "echo": _BOOL,
        "logprobs": _integer(0, 20),
    },
)
_RESPONSE = _object(
    ["input"],
    {
        "input": {"oneOf": [_TEXT, _list(_FREE, 1)]},
        "instructions": {"type": ["string", "null"]},
        "previous_response_id": {"type": ["string", "null"]},
        "max_output_tokens": _integer(1, 2**31),
        "temperature": _number(0, 2),
        "tools": _list(_FREE),
        "stream": _BOOL,
        "model": {"type": ["string", "null"]},
    },
)
_ANTHROPIC_MESSAGE = _object(
    ["role", "content"],
    {"role": {"enum": ["user", "assistant"]}, "content": {"oneOf": [_TEXT, _list(_FREE, 1)]}},
)
_ANTHROPIC = _object(
    ["messages", "max_tokens"],
    {
        "messages": _list(_ANTHROPIC_MESSAGE, 1),
        "max_tokens": {"type": "integer", "minimum": 1},
        "system": {"oneOf": [_TEXT, _list(_PART)]},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "stop_sequences": _list({**_TEXT, "minLength": 1}),
        "tools": _list(_FREE),
        "stream": {"type": "boolean"},
        "model": _TEXT,
    },
)
_COUNT = _object(
    ["messages"], {"messages": _list(_ANTHROPIC_MESSAGE, 1), "system": _TEXT, "tools": _list(_FREE)}
)
_ERROR = _object(["error"], {"error": _FREE})


def _operation(about: str, body: Json, streams: bool = True) -> Json:
    content: Json = {"application/json": {"schema": _FREE}}
    if streams:
        content["text/event-stream"] = {"schema": _TEXT}
    wrong = {"description": "error object", "content": {"application/json": {"schema": _ERROR}}}
    return {
        "description": about,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "the response, complete or streamed", "content": content},
            **dict.fromkeys(("400", "401", "403", "404", "413", "429"), wrong),
        },
    }


CHAT = _operation("OpenAI Chat Completions, streamed (server-sent events) or complete.", _CHAT)
COMPLETION = _operation("OpenAI Completions; prompts are texts or token ids.", _COMPLETION)
RESPONSE = _operation("OpenAI Responses; used by Codex.", _RESPONSE)
ANTHROPIC = _operation("Anthropic Messages; used by Claude Code.", _ANTHROPIC)
COUNT_TOKENS = _operation(
    "Returns the number of prompt tokens of an Anthropic Messages request.", _COUNT, streams=False
)
