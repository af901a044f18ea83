"""Plays days one after the other: feedback on a round precedes the next question, as in the benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from openclaw_test.evaluation.metaclaw.reading import Bench, Day, FileCheck, Message, Round, conversation
from openclaw_test.evaluation.metaclaw.scoring import Score, feedback_of, score_choice, score_files
from openclaw_test.evaluation.metaclaw.workplace import MOST_OUTPUT, SCRIPTS, Places, Workplace, change
from openclaw_test.people.agents import TooLong

MOST_CALLS = 12
"""Most tool calls in a round."""
FEEDBACK = "[Previous Feedback]"
GUIDES = ("AGENTS.md", "USER.md")
MOST_GUIDE = 2000
"""Most characters of each guide in the system message."""
ABOUT = "You help with files in a workspace. Paths are relative to it."


def _tool(name: str, about: str, **parameters: str) -> dict[str, Any]:
    texts = {key: {"type": "string", "description": value} for key, value in parameters.items()}
    schema = {"type": "object", "properties": texts, "required": list(texts)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [
    _tool("exec", "Run a bash command in the workspace.", command="the command"),
    _tool("read", "Read a text file.", path="its path"),
    _tool("write", "Write a text file, in place of an old one.", path="its path", content="the whole text"),
]


class Model(Protocol):
    """Answers the messages of a session, with tools if there are any."""

    def reply(self, session: str, messages: list[Message], tools: list[dict[str, Any]] | None) -> Message: ...

    def end(self, session: str) -> None: ...


@dataclass
class Talk:
    """The conversation of a day. `shortened`: number of restarts because it exceeded the model's context."""

    model: Model
    session: str
    place: Workplace
    tools: list[dict[str, Any]] | None
    messages: list[Message]
    system: Message
    shortened: int = 0
    calls: int = 0

    def say(self, text: str) -> str:
        """Sends a message; returns the model's final text, after all tool calls. Raises AgentError."""
        self.messages.append({"role": "user", "content": text})
        try:
            return self._answer()
        except TooLong:
            self.shortened += 1
            self.messages = [self.system, {"role": "user", "content": text}]
        try:
            return self._answer()
        except TooLong:
            self.messages.append({"role": "assistant", "content": ""})
            return ""

    def _answer(self) -> str:
        for _ in range(MOST_CALLS + 1):
            message = self.model.reply(self.session, self.messages, self.tools)
            self.messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                break
            self.messages += [self._called(call) for call in calls]
        return str(message.get("content") or "")

    def _called(self, call: dict[str, Any]) -> Message:
        self.calls += 1
        about = call.get("function") or {}
        result = use(self.place, str(about.get("name")), str(about.get("arguments")))
        return {"role": "tool", "tool_call_id": str(call.get("id")), "content": result[:MOST_OUTPUT]}


def use(place: Workplace, name: str, arguments: str) -> str:
    """Returns the result of a tool call for the model; an error is one line of text."""
    try:
        parsed = json.loads(arguments or "{}")
        if name == "exec":
            code, output = place.run(str(parsed["command"]))
            return output if code == 0 else f"{output}\n(exit status {code})"
        if name == "read":
            return place.read(str(parsed["path"]))
        if name == "write":
            place.write(str(parsed["path"]), str(parsed["content"]))
            return "written"
    except (KeyError, TypeError, ValueError, OSError) as error:
        return f"error: {type(error).__name__}: {error}"
    return f"error: there is no tool {name}"


@dataclass(frozen=True)
class Played:
    """A day's scores, and the numbers of shortened talks and tool calls."""

    day: str
    scores: list[Score] = field(default_factory=list)
    shortened: int = 0
    calls: int = 0


def play(
    bench: Bench, days: Sequence[Day], model: Model, open_place: Places, tools: bool, prefix: str
) -> Iterator[Played]:
    """Plays one day after the other, each as a session that is ended. Raises AgentError, BadBench, SandboxError."""
    for day in days:
        with open_place(bench, day) as place:
            system = {"role": "system", "content": _guides(place)}
            messages = [system, *day.history]
            talk = Talk(model, f"{prefix}-{day.id}", place, TOOLS if tools else None, messages, system)
            scores = _rounds(bench, day, talk)
            model.end(talk.session)
            yield Played(day.id, scores, talk.shortened, talk.calls)


def _rounds(bench: Bench, day: Day, talk: Talk) -> list[Score]:
    scores, feedback = [], ""
    for one in day.rounds:
        for update in one.updates:
            if update.target == "workspace":
                change(talk.place, update)
            else:
                talk.messages += conversation(update.source or "", update.path)
        answer = talk.say(f"{FEEDBACK} {feedback}\n\n{one.question}" if feedback else one.question)
        score = _scored(bench, one, answer, talk.place)
        scores.append(score)
        feedback = feedback_of(one, score)
    if feedback:
        talk.say(f"{FEEDBACK} {feedback}")
    return scores


def _scored(bench: Bench, one: Round, answer: str, place: Workplace) -> Score:
    """Scores a round. The scripts of the checks are in the workspace only while a check runs, so that the model
    cannot read or change them."""
    if not isinstance(one.check, FileCheck):
        return score_choice(one.check, answer)
    if bench.scripts is not None:
        place.put(bench.scripts, SCRIPTS)
    code, _ = place.run(one.check.command)
    if bench.scripts is not None:
        place.remove(SCRIPTS)
    return score_files(code, one.check.expected)


def _guides(place: Workplace) -> str:
    """Returns the system message: instructions for the tools, and the workspace's guides for agents."""
    texts = [ABOUT]
    for name in GUIDES:
        try:
            texts.append(place.read(name)[:MOST_GUIDE])
        except OSError:
            continue
    return "\n\n".join(texts)
