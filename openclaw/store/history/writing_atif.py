"""Exports sessions as ATIF trajectories, with token ids, log-probs and rewards, for viewers of other projects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from openclaw import __version__
from openclaw.common.messages import text_of
from openclaw.store.files.exporting import exported, sessions_with_turns
from openclaw.store.files.jsonl import TurnLine
from openclaw.store.history.atif import VERSION
from openclaw.store.rollout_store import RolloutStore
from openclaw.types import Message

Json = dict[str, Any]


def trajectories(
    store: RolloutStore, session_id: str | None = None, person: str | None = None
) -> Iterator[Json]:
    """Yields a trajectory for every session with a main turn, oldest first. Raises StoreError.

    Args:
        session_id: export only this session.
        person: export only turns of this person.
    """
    for id_ in sessions_with_turns(store, session_id, person):
        lines = [line for line in exported(store, id_, person) if isinstance(line, TurnLine)]
        main = [line for line in lines if line.turn.turn_type == "main"]
        if main:
            yield _trajectory(id_, sorted(main, key=lambda line: line.turn.turn_index or 0))


def trajectory_file(session_id: str, used: set[str]) -> str:
    """Returns a safe file name for a session id that is not in `used`, and adds it to `used`.

    Clients choose session ids, so an id may contain any characters, and several ids may map to the same name.
    """
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in session_id)
    name = safe[:150].lstrip(".") or "session"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    unused = next(one for one in itertools.chain([name], numbered) if one.casefold() not in used)
    used.add(unused.casefold())
    return f"{unused}.json"


def dump_trajectory(trajectory: Json, indent: bool) -> bytes:
    """Returns a trajectory as JSON that ends with a newline."""
    return orjson.dumps(trajectory, option=(orjson.OPT_INDENT_2 if indent else 0) | orjson.OPT_APPEND_NEWLINE)


def _trajectory(session_id: str, lines: list[TurnLine]) -> Json:
    steps = _Steps()
    for line in lines:
        steps.add(line)
    last = lines[-1].turn
    steps.add_messages(last.next_state or [])
    turns = [line.turn for line in lines]
    return {
        "schema_version": VERSION,
        "session_id": session_id,
        "agent": {"name": "openclaw-rl", "version": __version__, "model_name": last.policy_id},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps.steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(len(turn.prompt_ids) for turn in turns),
            "total_completion_tokens": sum(len(turn.completion_ids) for turn in turns),
            "total_steps": len(steps.steps),
        },
        "extra": _without_none(
            {"person": last.person, "group_id": last.group_id, "task_id": last.task_id, "source": last.source}
        ),
    }


class _Steps:
    """Collects the steps of a trajectory.

    If a turn does not continue the previous one (a branch, or a rewritten history), the messages after their common
    beginning are added.
    """

    def __init__(self) -> None:
        self.steps: list[Json] = []
        self._written: list[Message] = []

    def add(self, line: TurnLine) -> None:
        """Adds the messages before an answer, and the answer."""
        turn = line.turn
        self.add_messages(turn.messages[_common_length(self._written, turn.messages) :])
        self.steps.append(_answer_step(line))
        self._written = [*turn.messages, turn.response_message]

    def add_messages(self, messages: list[Message]) -> None:
        """Adds messages that are not answers of turns. A tool result is added to the step that called the tool."""
        for message in messages:
            text = text_of(message)
            if message["role"] == "assistant":
                self.steps.append(
                    {"source": "agent", "message": text, "is_copied_context": True, **_calls(message)}
                )
            elif message["role"] == "tool" and self._add_result(message, text):
                continue
            else:
                role = "system" if message["role"] in ("system", "developer") else "user"
                self.steps.append({"source": role, "message": text})

    def _add_result(self, message: Message, text: str) -> bool:
        """Adds a tool result to the last step of the agent. Returns False if that step did not call the tool."""
        for step in reversed(self.steps):
            if step["source"] == "agent":
                call_ids = [call["tool_call_id"] for call in step.get("tool_calls", [])]
                if message.get("tool_call_id") not in call_ids:
                    return False
                results = step.setdefault("observation", {"results": []})["results"]
                results.append({"source_call_id": message["tool_call_id"], "content": text})
                return True
        return False


def _common_length(written: list[Message], messages: list[Message]) -> int:
    """Returns the number of messages at the start of a history that are already written."""
    count = 0
    for old, new in zip(written, messages, strict=False):
        if old["role"] != new["role"] or text_of(old).strip() != text_of(new).strip():
            break
        count += 1
    return count


def _answer_step(line: TurnLine) -> Json:
    turn, sample = line.turn, line.sample
    metrics: Json = {
        "prompt_tokens": len(turn.prompt_ids),
        "completion_tokens": len(turn.completion_ids),
        "prompt_token_ids": turn.prompt_ids,
        "completion_token_ids": turn.completion_ids,
        "logprobs": turn.completion_log_probs,
        "extra": {"weight_version_spans": turn.version_spans},
    }
    scores = [one.judgement.score for one in line.judgements if one.judgement.kind == "eval"]
    hints = [hint for one in line.judgements for hint in one.judgement.hints]
    extra = {
        "completion_id": turn.completion_id,
        "state": str(turn.state),
        "score": scores[-1] if scores else None,
        "hints": hints or None,
        "reward": sample.reward if sample else None,
        "sample": str(sample.state) if sample else None,
        "trained_version": sample.trained_version if sample else None,
    }
    reasoning = turn.response_message.get("reasoning_content")
    return {
        "source": "agent",
        "timestamp": datetime.fromtimestamp(turn.created_at, UTC).isoformat(),
        "message": text_of(turn.response_message),
        **({"reasoning_content": reasoning} if reasoning else {}),
        **_calls(turn.response_message),
        "metrics": _without_none(metrics),
        "extra": _without_none(extra),
    }


def _calls(message: Message) -> Json:
    calls = [_call(call) for call in message.get("tool_calls") or []]
    return {"tool_calls": calls} if calls else {}


def _call(call: Message) -> Json:
    function = call["function"]
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            arguments = {"text": arguments}
    if not isinstance(arguments, dict):
        arguments = {"value": arguments}
    return {"tool_call_id": str(call.get("id")), "function_name": function["name"], "arguments": arguments}


def _without_none(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}
