"""OpenAI's wire format of a response: items, as numbered events or in one object."""

from __future__ import annotations

from typing import Any

import orjson

from openclaw.errors import ClientError
from openclaw.formats.deltas import CallArguments, CallEnd, CallStart, Delta, TextDelta
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.http.dialects.chat import OpenAIErrors, usage
from openclaw.http.dialects.responses_tools import namespaces

Json = dict[str, Any]

_REPEATED = ("instructions", "metadata", "previous_response_id", "temperature", "top_p", "max_output_tokens")


class _Item:
    """One output item, growing. `kind`: message, reasoning or function_call; `names`: of its function, as the client
    knows them."""

    def __init__(
        self, kind: str, number: int, unique: str, call: CallStart | None = None, names: Json | None = None
    ) -> None:
        self.kind = kind
        self.call = call
        self.names = names or {}
        self.number = number
        self.text: list[str] = []
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        self.id = f"{prefix}_{unique}_{number}"

    def part(self, text: str) -> Json:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def body(self, status: str) -> Json:
        text = "".join(self.text)
        item: Json = {"id": self.id, "type": self.kind, "status": status}
        if self.call is not None:
            return {**item, "call_id": self.call.id, **self.names, "arguments": text}
        content = [self.part(text)] if status != "in_progress" else []
        if self.kind == "reasoning":
            return {**item, "summary": [], "content": content}
        return {**item, "role": "assistant", "content": content}


class ResponseEvents(OpenAIErrors):
    """One response, streamed or whole: both are made of the same items."""

    def __init__(self, exchange: Exchange, model: str, asked: Json) -> None:
        self._exchange = exchange
        self._model = model
        self._asked = asked
        self._namespaces = namespaces(asked.get("tools"))
        self._stream = exchange.request.stream
        self._sequence = 0
        self._done: list[_Item] = []
        self._item: _Item | None = None
        self._count = 0
        self._status = "in_progress"

    def start(self) -> bytes:
        created = self._event("response.created", response=self._response())
        return created + self._event("response.in_progress", response=self._response())

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        events = b"".join([self._delta(delta) for delta in chunk.deltas])
        return events if self._stream else b""

    def finished(self, index: int, answer: Completion) -> bytes:
        self._status = "incomplete" if answer.finish_reason == "length" else "completed"
        return self._close(self._status)

    def end(self) -> bytes:
        if not self._stream:
            return orjson.dumps(self._response())
        return self._event(f"response.{self._status}", response=self._response())

    def failure(self, error: ClientError) -> bytes:
        self._status = "failed"
        failed = {**self._response(), "error": {"code": "server_error", "message": str(error)}}
        return self._event("response.failed", response=failed)

    def _delta(self, delta: Delta) -> bytes:
        if isinstance(delta, TextDelta):
            kind = "message" if delta.kind == "content" else "reasoning"
            events = b""
            if self._item is None or self._item.kind != kind:
                events = self._close("completed") + self._open(kind)
            name = "output_text" if kind == "message" else "reasoning_text"
            more: Json = {"logprobs": []} if kind == "message" else {}
            return events + self._grow(delta.text, name, content_index=0, **more)
        if isinstance(delta, CallStart):
            return self._close("completed") + self._open("function_call", delta)
        if isinstance(delta, CallArguments):
            return self._grow(delta.text, "function_call_arguments")
        return self._end_call(delta)

    def _end_call(self, end: CallEnd) -> bytes:
        if end.complete:
            return self._close("completed")
        self._item = None  # no call after all: it never ends, and the response does not have it
        return b""

    def _open(self, kind: str, call: CallStart | None = None) -> bytes:
        unique = self._exchange.turn.completion_id.rpartition("_")[2]
        names = None if call is None else self._names(call.name)
        self._item = item = _Item(kind, self._count, unique, call, names)
        self._count += 1
        body = item.body("in_progress")
        events = self._event("response.output_item.added", output_index=item.number, item=body)
        if call is None:
            events += self._of_item(item, "content_part.added", content_index=0, part=item.part(""))
        return events

    def _names(self, name: str) -> Json:
        """A function's own name, and its namespace where it has one."""
        if name not in self._namespaces:
            return {"name": name}
        namespace, own = self._namespaces[name]
        return {"namespace": namespace, "name": own}

    def _grow(self, text: str, name: str, **fields: object) -> bytes:
        assert self._item is not None
        self._item.text.append(text)
        return self._of_item(self._item, f"{name}.delta", delta=text, **fields)

    def _close(self, status: str) -> bytes:
        item, self._item = self._item, None
        if item is None:
            return b""
        self._done.append(item)
        text = "".join(item.text)
        if item.call is not None:
            events = self._of_item(
                item, "function_call_arguments.done", arguments=text, name=item.names["name"]
            )
        elif item.kind == "reasoning":
            events = self._of_item(item, "reasoning_text.done", text=text, content_index=0)
        else:
            events = self._of_item(item, "output_text.done", text=text, content_index=0, logprobs=[])
        if item.call is None:
            events += self._of_item(item, "content_part.done", content_index=0, part=item.part(text))
        body = item.body(status)
        return events + self._event("response.output_item.done", output_index=item.number, item=body)

    def _response(self) -> Json:
        exchange = self._exchange
        counts = usage([exchange])
        over = self._status in ("completed", "incomplete")
        response: Json = {
            "id": exchange.turn.completion_id,
            "object": "response",
            "created_at": int(exchange.turn.created_at),
            "status": self._status,
            "model": self._model,
            "output": [item.body(self._item_status(item)) for item in self._done],
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if self._status == "incomplete" else None,
            "parallel_tool_calls": exchange.request.parallel_tool_calls,
            "tool_choice": self._asked.get("tool_choice") or "auto",
            "tools": self._asked.get("tools") or [],
            **{name: self._asked.get(name) for name in _REPEATED},
            "usage": _usage(counts) if over else None,
            "session_id": exchange.turn.session_id,
        }
        if exchange.request.return_token_ids and over:
            response["prompt_token_ids"] = exchange.turn.prompt_ids
            response["token_ids"] = exchange.generation.ids
            response["token_log_probs"] = exchange.generation.log_probs
        return response

    def _item_status(self, item: _Item) -> str:
        """Only the last item can be incomplete, and never a call."""
        cut = self._status == "incomplete" and item is self._done[-1] and item.call is None
        return "incomplete" if cut else "completed"

    def _of_item(self, item: _Item, event: str, /, **fields: object) -> bytes:
        return self._event(f"response.{event}", item_id=item.id, output_index=item.number, **fields)

    def _event(self, name: str, /, **fields: object) -> bytes:
        data = orjson.dumps({"type": name, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _usage(counts: dict[str, int]) -> Json:
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts["total_tokens"],
    }
