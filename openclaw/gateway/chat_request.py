"""Parses and validates chat requests, including size limits, and values in URLs.

Errors name the invalid field. Unknown fields are ignored. A field that is null is treated as absent.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from openclaw.common.messages import (
    PICTURE,
    WITH_PICTURES,
    Picture,
    PicturePart,
    as_json,
    part_text,
    prefix_keys,
    text_of,
    warn_tool_left_out,
)
from openclaw.errors import ClientError
from openclaw.formats.families import TemplateOptions
from openclaw.gateway.pictures import RequestPictures
from openclaw.types import Message

MAX_DEPTH = 100
"""Most levels of nested objects and lists in a request body; the JSON schema of a tool has about ten."""
MAX_CONTAINERS = 200_000
"""Most objects and lists in a request body; 10,000 messages have about 30,000."""


def parse_body(data: bytes) -> dict[str, Any]:
    """Returns the JSON object in a request body. Raises ClientError if it is invalid or too complex."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        data = _without_lone_surrogates(data)
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ClientError(f"the request body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise ClientError("the request body must be a JSON object", code="invalid_json")
    if check_shape(body) != _strings_in(data):
        message = "the request body contains an object with a repeated field: send each field once"
        raise ClientError(message, code="invalid_json")
    return body


def _without_lone_surrogates(data: bytes) -> bytes:
    """Replaces lone surrogates, which strings of JavaScript may contain, by U+FFFD, and removes a byte order mark."""
    data = data.removeprefix(codecs.BOM_UTF8)
    return _ESCAPES.sub(_replacement, data) if b"\\u" in data else data


def _replacement(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else rb"\ufffd"


_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""A surrogate pair, a lone surrogate, or any other escape."""


def _strings_in(data: bytes) -> int:
    """Returns the number of strings in valid JSON, including keys. If the parsed value has fewer, a key is repeated:
    the parser keeps only the last value of a key."""
    # a quotation mark after one backslash is part of a string; after two backslashes it ends the string
    plain = data.replace(b"\\\\", b"") if b'\\\\"' in data else data
    return (plain.count(b'"') - plain.count(b'\\"')) // 2


def boolean(body: Mapping[str, object], name: str, prefix: str = "") -> bool:
    """Returns a boolean field; False if it is absent. `prefix`: of the name in errors. Raises ClientError."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(prefix + name, "true or false")
    return bool(value)


def string(body: Mapping[str, object], name: str) -> str | None:
    """Returns a string field; None if it is absent. Raises ClientError."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, "a string")
    return value


def integer(body: Mapping[str, object], name: str, least: int, most: int) -> int | None:
    """Returns an integer field from `least` to `most`; None if it is absent. Raises ClientError."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(name, f"a whole number from {least} to {most}")
    return value


def number(body: Mapping[str, object], name: str, least: float, most: float) -> float | None:
    """Returns a finite number field from `least` to `most`; None if it is absent. Raises ClientError."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong(name, "a number")
    if not least <= value <= most:
        raise wrong(name, f"a number from {least:g} to {most:g}")
    return float(value)


def function_tools(
    tools: object, read: Callable[[object, str], dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Returns the tools of another API dialect as tools of the chat API; None if there are none.

    Args:
        tools: list of tools of the dialect.
        read: converts one tool to a function of the chat API; its second argument is the field name for errors.

    Raises:
        ClientError: `tools` is not a list, or a tool is invalid.
    """
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise wrong("tools", "a list")
    return [
        {"type": "function", "function": read(tool, f"tools[{index}]")} for index, tool in enumerate(tools)
    ]


def function_call(call_id: object, name: str, arguments: str) -> dict[str, Any]:
    """Returns a tool call of the chat API. `arguments` is JSON text."""
    return {"id": str(call_id), "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(text: str, name: str, default: int, least: int, most: int) -> int:
    """Returns an integer from `least` to `most` of the query string, or `default` for "". Raises ClientError."""
    if not text:
        return default
    if len(text) > 12 or not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
        raise ClientError(f"{name} must be a whole number from {least} to {most}", name)
    return int(text)


def printable(text: str, name: str) -> str:
    """Returns an id from the URL unchanged. Raises ClientError (404) if it contains unprintable characters."""
    if not text.isprintable():
        raise ClientError(f"there is no {name} {text!r}", name, "not_found", 404)
    return text


def wrong(param: str, expected: str) -> ClientError:
    """Returns the error for a field with an invalid value."""
    return ClientError(f"{param} must be {expected}", param)


def check_shape(value: dict[str, Any]) -> int:
    """Returns the number of strings in a JSON object, including keys.

    Raises:
        ClientError: the object has more than MAX_DEPTH levels, or more than MAX_CONTAINERS objects and lists, so that
            its validation would block the event loop for too long.
    """
    level: list[dict[str, Any] | list[Any]] = [value]
    containers = strings = 0
    for _ in range(MAX_DEPTH + 1):
        inside: list[dict[str, Any] | list[Any]] = []
        for outer in level:
            values: Iterable[Any] = outer
            if isinstance(outer, dict):
                strings += len(outer)
                values = outer.values()
            for inner in values:
                if isinstance(inner, str):
                    strings += 1
                elif isinstance(inner, (dict, list)):
                    inside.append(inner)
                    if containers + len(inside) > MAX_CONTAINERS:
                        what = f"has more than {MAX_CONTAINERS} objects and lists"
                        raise ClientError(f"the request body {what}", code="invalid_json")
        level, containers = inside, containers + len(inside)
        if not level:
            return strings
    raise ClientError(f"the request body is nested more than {MAX_DEPTH} levels deep", code="invalid_json")


ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1000
"""Most characters of one stop string. Text that may be the beginning of a stop string is held back."""
MAX_TOP_LOGPROBS = 20
MAX_ANSWERS = 16
MAX_OPTION_CHARACTERS = 16_384
"""Most characters of the template options as JSON, because renderers are cached by options."""
SHOWN = 100
"""Most characters of an invalid value in an error message."""


@dataclass(frozen=True)
class ChatRequest:
    """One validated request. `sampling`: in SGLang's names, only values that the client set; `body`: as received;
    `pictures`: those that the messages contain, by the SHA-256 of their bytes."""

    body: dict[str, Any]
    model: str | None
    messages: list[Message]
    tools: list[Message] | None
    max_tokens: int | None
    stop: list[str]
    stream: bool
    include_usage: bool
    log_probs: bool
    top_log_probs: int
    return_token_ids: bool
    thinking: TemplateOptions
    sampling: dict[str, Any] = field(default_factory=dict)
    n: int = 1
    parallel_tool_calls: bool = True
    forced_tool: str | None = None
    """Function that must be called; "" for any."""
    pictures: dict[str, Picture] = field(default_factory=dict)

    @cached_property
    def prefixes(self) -> list[bytes] | None:
        """Returns `prefix_keys` of the messages."""
        return prefix_keys(self.messages)

    @cached_property
    def parts(self) -> int:
        """Returns the number of text parts, tool calls and tools. Each takes time to process, even a short one."""
        return len(self.tools or ()) + parts_in(self.messages)


def parts_in(messages: Sequence[Message]) -> int:
    """Returns the number of text parts and tool calls in messages."""
    count = 0
    for message in messages:
        content, calls = message.get("content"), message.get("tool_calls")
        count += len(content) if isinstance(content, list) else 0
        count += len(calls) if isinstance(calls, list) else 0
    return count


def chat_request(body: dict[str, Any], sees: bool = False) -> ChatRequest:
    """Validates a request. Raises ClientError that names the invalid field.

    Args:
        sees: the model reads pictures; otherwise a placeholder replaces each.
    """
    refuse_missing(body)
    pictures = RequestPictures() if sees else None
    messages = _messages(body.get("messages"), pictures)
    tools = _tools(body)
    forced = _forced_tool(body.get("tool_choice"), tools)
    sampling = _sampling(body)
    if forced is not None:
        sampling.pop("json_schema", None)  # response_format applies to text, not to tool calls
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise wrong("stream_options", "an object")
    log_probs = boolean(body, "logprobs")
    top = integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS) or 0
    if top and not log_probs:
        raise ClientError("top_logprobs needs logprobs: true", "top_logprobs")
    most = [integer(body, name, 1, 2**31) for name in ("max_completion_tokens", "max_tokens")]
    return ChatRequest(
        body=body,
        model=string(body, "model"),
        messages=messages,
        tools=tools,
        max_tokens=next((value for value in most if value is not None), None),
        stop=_stop(body.get("stop")),
        stream=boolean(body, "stream"),
        include_usage=boolean(options or {}, "include_usage", "stream_options."),
        log_probs=log_probs,
        top_log_probs=top,
        return_token_ids=boolean(body, "return_token_ids"),
        thinking=_template_options(body, forced is None and "json_schema" not in sampling),
        sampling=sampling,
        n=integer(body, "n", 1, MAX_ANSWERS) or 1,
        parallel_tool_calls=body.get("parallel_tool_calls") is None or boolean(body, "parallel_tool_calls"),
        forced_tool=forced,
        pictures={} if pictures is None else pictures.known,
    )


def _messages(messages: object, pictures: RequestPictures | None) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise ClientError("messages must be a list with at least one message", "messages")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise wrong(where, "an object")
        if message.get("role") not in ROLES:
            shown = repr(message.get("role"))[:SHOWN]
            raise ClientError(
                f"{where}.role is {shown}; it must be one of {', '.join(ROLES)}", f"{where}.role"
            )
        _content(message, where, pictures if message["role"] in WITH_PICTURES else None)
        if message.get("tool_calls") is not None:
            _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    return messages


def _content(message: Message, where: str, pictures: RequestPictures | None) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None:
        if message["role"] != "assistant":
            raise ClientError(f"{where}.content is missing", f"{where}.content")
        return
    if not isinstance(content, list):
        raise wrong(f"{where}.content", "a string or a list of parts")
    for index, part in enumerate(content):
        name = f"{where}.content[{index}]"
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise wrong(name, "an object with a type")
        if part["type"] == PICTURE and not isinstance(part, PicturePart):
            content[index] = {"type": "text", "text": part_text(part)}
        elif not isinstance(part.get("text"), str):
            if part["type"] == "text":
                raise wrong(f"{name}.text", "a string")
            picture = None if pictures is None else pictures.part(part, name)
            content[index] = {"type": "text", "text": part_text(part)} if picture is None else picture


def _tool_calls(calls: object, where: str) -> None:
    if not isinstance(calls, list):
        raise wrong(where, "a list")
    for index, call in enumerate(calls):
        if isinstance(call, dict) and isinstance(custom := call.get("custom"), dict):
            arguments = as_json({"input": custom.get("input")})
            calls[index] = call = function_call(call.get("id"), str(custom.get("name")), arguments)
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(f"{where}[{index}].function", "an object with a name")
        if not isinstance(function.get("arguments"), str | dict | None):
            raise wrong(f"{where}[{index}].function.arguments", "JSON text")


def _tools(body: dict[str, Any]) -> list[Message] | None:
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise wrong("tools", "a list")
    tools = [tool for tool in tools or [] if not _is_another_kind(tool)]
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(f"tools[{index}].function", "an object with a name")
    return None if body.get("tool_choice") == "none" else tools or None


def _is_another_kind(tool: object) -> bool:
    """Returns whether a tool is not a function. Such tools are omitted from the prompt."""
    kind = tool.get("type") if isinstance(tool, dict) and "function" not in tool else None
    if not isinstance(kind, str) or kind == "function":
        return False
    warn_tool_left_out(kind[:SHOWN])
    return True


def _forced_tool(choice: object, tools: list[Message] | None) -> str | None:
    """Returns the name of the function that must be called; "" for any; None if the model may choose."""
    if choice in (None, "auto", "none"):
        return None
    name: Any = ""
    if choice != "required":
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise wrong("tool_choice", "none, auto, required or {type: function, function: {name}}")
    names = [tool["function"]["name"] for tool in tools or []]
    if not names or (name and name not in names):
        raise ClientError(f"tool_choice: tools has no {name or 'function'!r}", "tool_choice")
    return str(names[0]) if len(names) == 1 else str(name)


def _sampling(body: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "temperature": number(body, "temperature", 0.0, 2.0),
        "top_p": number(body, "top_p", 0.0, 1.0),
        "min_p": number(body, "min_p", 0.0, 1.0),
        "top_k": integer(body, "top_k", -1, 2**31),
        "sampling_seed": integer(body, "seed", -(2**63), 2**63 - MAX_ANSWERS),
    }
    if options["top_p"] == 0.0:
        raise ClientError("top_p must be more than 0", "top_p")
    if options["top_k"] == 0:
        options["top_k"] = -1
    for name, neutral, least in (
        ("frequency_penalty", 0.0, -2.0),
        ("presence_penalty", 0.0, -2.0),
        ("repetition_penalty", 1.0, 0.01),
    ):
        value = number(body, name, least, 2.0)
        options[name] = None if value == neutral else value
    options["logit_bias"] = _logit_bias(body.get("logit_bias"))
    options["json_schema"] = _json_schema(body.get("response_format"))
    return {name: value for name, value in options.items() if value is not None}


def _logit_bias(bias: Any) -> dict[str, float] | None:
    if bias is None or bias == {}:
        return None
    fits = isinstance(bias, dict) and all(
        token.isdecimal() and len(token) < 10 and type(value) in (int, float) and abs(value) <= 100
        for token, value in bias.items()
    )
    if not fits:
        raise wrong("logit_bias", "an object of token id to a number from -100 to 100")
    return dict(bias)


def _json_schema(form: Any) -> str | None:
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type": "object"}'
    schema = form.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
        raise wrong("response_format", "{type: text | json_object | json_schema}")
    return orjson.dumps(schema["schema"]).decode()


def _stop(stop: object) -> list[str]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise wrong("stop", "a string or a list of strings, none empty")
    if len(stops) > MAX_STOP_STRINGS:
        raise ClientError(f"stop: at most {MAX_STOP_STRINGS} strings", "stop")
    if any(len(text) > MAX_STOP_CHARACTERS for text in stops):
        raise ClientError(f"stop: a string may have at most {MAX_STOP_CHARACTERS} characters", "stop")
    return stops


def _template_options(body: dict[str, Any], may_think: bool) -> TemplateOptions:
    """Returns the options of the chat template. `may_think`: False disables reasoning, for a required tool call or an
    answer that must follow a schema."""
    options = body.get("chat_template_kwargs")
    if options is not None and not isinstance(options, dict):
        raise wrong("chat_template_kwargs", "an object")
    if options and len(orjson.dumps(options)) > MAX_OPTION_CHARACTERS:
        raise wrong("chat_template_kwargs", f"at most {MAX_OPTION_CHARACTERS} characters of JSON")
    options = {**_asked_thinking(body), **(options or {})}
    thinking = options.get("enable_thinking", True)
    if not isinstance(thinking, bool):
        raise wrong("chat_template_kwargs.enable_thinking", "true or false")
    thinking = thinking and may_think
    return {**options, "enable_thinking": thinking} if options and options.keys() - _THINKING else thinking


_THINKING = {"enable_thinking"}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def thinking_of(effort: object, name: str) -> dict[str, Any]:
    """Returns the template options for a reasoning effort. Raises ClientError for an unknown effort."""
    if effort not in EFFORTS:
        raise wrong(name, f"one of {', '.join(EFFORTS)}")
    return {"enable_thinking": False} if effort in EFFORTS[:2] else {"reasoning_effort": effort}


def _asked_thinking(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the template options in the fields `reasoning_effort` and `enable_thinking`."""
    effort, enabled = body.get("reasoning_effort"), body.get("enable_thinking")
    options = {} if effort is None else thinking_of(effort, "reasoning_effort")
    return options if enabled is None else {**options, "enable_thinking": boolean(body, "enable_thinking")}


_UNSUPPORTED = (
    *("ignore_eos", "min_tokens", "stop_token_ids", "continue_final_message", "prompt_logprobs", "echo"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
)


def refuse_missing(body: dict[str, Any]) -> None:
    """Raises ClientError for a field of other servers that would change the answer and is not supported here."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise ClientError(f"{name}: not supported by this server; remove it", name, "unsupported_value")


PARTS_PER_MESSAGE = 4
"""Most text parts, tool calls and tools of a request, as a multiple of the largest number of messages."""
LARGE_HISTORY_CHARACTERS = 20_000
"""Characters of messages and tools, as JSON, from which a prompt is rendered in a thread, so that it does not block
other streams."""
LARGE_PARTS = 200
"""Number of text parts, tool calls and tools from which a prompt is rendered in a thread."""


def check_number(request: ChatRequest, most: int) -> None:
    """Raises ClientError for more than `most` messages, or more than PARTS_PER_MESSAGE times `most` parts."""
    if len(request.messages) > most:
        message = f"messages: at most {most} in one request, not {len(request.messages)}"
        raise ClientError(message, "messages", "too_many_messages")
    if request.parts > PARTS_PER_MESSAGE * most:
        limit = f"at most {PARTS_PER_MESSAGE * most} text parts, tool calls and tools together in one request"
        raise ClientError(f"messages: {limit}", "messages", "too_many_messages")


def is_large(messages: Sequence[Message]) -> bool:
    """Returns whether processing these messages takes so long that it must not run in the event loop."""
    characters = sum(len(text_of(message)) for message in messages)
    return characters >= LARGE_HISTORY_CHARACTERS or parts_in(messages) >= LARGE_PARTS
