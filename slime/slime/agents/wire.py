"""The types of `protocol` as JSON, used by pools and by environments in another Python.

Field names are those of terminal-bench's pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slime.agents.protocol import Action, Message, Observation, Outcome, Start, Task, Tool, ToolCall

Json = dict[str, Any]


class Refusal(Exception):
    """A response other than 200.

    Attributes:
        status: 400 bad request, 401 wrong key, 404 no such lease, 409 another call runs or a request id used twice,
            410 the lease has ended, 413 too large, 429 pool full, 500 the environment raised, 502 no pool,
            503 pool unreachable.
        code: for programs.
        retry_after: seconds, or None.
    """

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after

    def body(self) -> Json:
        return {"ok": False, "code": self.code, "error": str(self)}


def text_of(body: Mapping[str, Any], name: str) -> str:
    """Returns a required field. Raises Refusal."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise Refusal(400, "BAD_REQUEST", f"the request needs the field {name}, a text")
    return value


def object_of(body: Mapping[str, Any], name: str) -> Json:
    """Returns a field that must be an object. Raises Refusal."""
    value = body.get(name)
    if not isinstance(value, dict):
        raise Refusal(400, "BAD_REQUEST", f"the request needs the field {name}, an object")
    return value


def task_meta(task: Task) -> Json:
    return {"prompt": task.prompt, "label": task.label, "metadata": dict(task.metadata)}


def task_of(meta: Json) -> Task:
    """Returns the task from our own client, or from one that sends a task record with an instruction. Raises
    Refusal."""
    if "prompt" not in meta and "instruction" in meta:
        return Task(str(meta["instruction"]), meta.get("label"), meta)
    prompt, metadata = meta.get("prompt"), meta.get("metadata", {})
    if not isinstance(prompt, str | list) or not isinstance(metadata, dict):
        raise Refusal(
            400,
            "BAD_REQUEST",
            "task_meta needs a prompt or an instruction, and its metadata must be an object",
        )
    return Task(prompt, meta.get("label"), metadata)


def start_body(start: Start) -> Json:
    last = next((m["content"] for m in reversed(start.messages) if m.get("role") == "user"), "")
    schemas = [tool.spec() for tool in start.tools]
    return {"ok": True, "user_msg": last, "tool_schemas": schemas, "messages": start.messages}


def start_of(body: Json) -> Start:
    about = [schema["function"] for schema in body["tool_schemas"]]
    tools = tuple(Tool(tool["name"], tool["description"], tool["parameters"]) for tool in about)
    return Start(_messages(body), tools)


def action_body(action: Action) -> Json:
    calls = [{"name": call.name, "arguments": call.arguments} for call in action.calls]
    return {"text": action.text, "calls": calls}


def action_of(body: Json) -> Action:
    """Parses an action. Raises Refusal."""
    calls = body.get("calls", [])
    if not isinstance(body.get("text"), str) or not isinstance(calls, list):
        raise Refusal(400, "BAD_REQUEST", "an action must be {text: ..., calls: [...]}")
    return Action(body["text"], tuple(call_of(call) for call in calls))


def call_of(call: object) -> ToolCall:
    """Parses a tool call. Raises Refusal."""
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        arguments = call.get("arguments", {})
        if isinstance(arguments, dict):
            return ToolCall(call["name"], arguments)
    raise Refusal(400, "BAD_REQUEST", "a tool call must be {name: ..., arguments: {...}}")


def observation_body(seen: Observation) -> Json:
    text = "\n".join(str(message.get("content", "")) for message in seen.messages)
    return {
        "ok": True,
        "observation": text,
        "messages": seen.messages,
        "done": seen.done,
        "step_score": seen.step_score,
    }


def observation_of(body: Json) -> Observation:
    score = body["step_score"]
    return Observation(_messages(body), bool(body["done"]), None if score is None else float(score))


def outcome_body(outcome: Outcome) -> Json:
    return {"ok": True, "score": outcome.score, "solved": outcome.solved, "details": dict(outcome.details)}


def outcome_of(body: Json) -> Outcome:
    return Outcome(float(body["score"]), bool(body["solved"]), dict(body["details"]))


def _messages(body: Json) -> list[Message]:
    if not all(isinstance(message, dict) for message in body["messages"]):
        raise ValueError("messages must be objects")
    return list(body["messages"])
