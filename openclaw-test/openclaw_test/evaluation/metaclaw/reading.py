"""Reads a folder in the format of MetaClaw-Bench: days of rounds, each a question with a check.

all_tests.json                 {"name", "eval_dir", "workspace_src", "openclaw_state_dir", "test": [{"id", "agent",
                               "session", "eval", ...}]}; its paths may begin at a folder above
EVAL_DIR/DAY/questions.json    {"id", "rounds": [{"id", "type", "question", "feedback", "eval", "update"}]}
EVAL_DIR/scripts/              scripts that checks call
STATE/agents/AGENT/sessions/   the conversation that a day continues, as JSON lines
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]


class BadBench(ValueError):
    """A folder does not have the format; the message names the place."""


@dataclass(frozen=True)
class Choice:
    """A question with options. `options`: their letters; `right`: the correct ones."""

    options: frozenset[str]
    right: frozenset[str]


@dataclass(frozen=True)
class FileCheck:
    """A check by a command in the workspace: its exit status decides."""

    command: str
    expected: int


@dataclass(frozen=True)
class Update:
    """A change before a round. `action`: new, append, insert or delete; `source`: the inserted text."""

    target: str
    action: str
    path: str
    source: str | None
    param: Any


@dataclass(frozen=True)
class Round:
    """A question. `correct` and `incorrect`: feedback; `options`: feedback for each option."""

    id: str
    question: str
    check: Choice | FileCheck
    correct: str
    incorrect: str
    options: dict[str, str]
    updates: tuple[Update, ...]


@dataclass(frozen=True)
class Day:
    """One day; `history`: the text before the first round."""

    id: str
    rounds: tuple[Round, ...]
    history: tuple[Message, ...]


@dataclass(frozen=True)
class Bench:
    """The benchmark; `workspace`: initial files of each day, per day and shared; `scripts`: None if there are
    none."""

    name: str
    days: tuple[Day, ...]
    workspace: Path
    scripts: Path | None


def read_bench(folder: Path) -> Bench:
    """Reads the folder. Raises BadBench."""
    about = _read(folder / "all_tests.json")
    tests = about.get("test")
    if not isinstance(tests, list) or not tests:
        raise BadBench(f"{folder / 'all_tests.json'}: `test` must be a non-empty list of days")
    evaluation, workspace = (_place(folder, about, name) for name in ("eval_dir", "workspace_src"))
    state = _place(folder, about, "openclaw_state_dir") if about.get("openclaw_state_dir") else None
    days = tuple(_day(evaluation, state, test) for test in tests)
    scripts = evaluation / "scripts"
    return Bench(str(about.get("name", folder.name)), days, workspace, scripts if scripts.is_dir() else None)


def conversation(text: str, where: str) -> list[Message]:
    """Returns the user and assistant messages in a session's JSON lines, without tool calls. Raises BadBench."""
    messages: list[Message] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise BadBench(f"{where}, line {number}: no JSON") from error
        message = entry.get("message") if isinstance(entry, dict) and entry.get("type") == "message" else None
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            continue
        content = _text(message.get("content"))
        if content and messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += f"\n\n{content}"
        elif content:
            messages.append({"role": message["role"], "content": content})
    return messages


def _day(evaluation: Path, state: Path | None, test: Any) -> Day:
    if not isinstance(test, dict) or not all(isinstance(test.get(name), str) for name in ("id", "eval")):
        raise BadBench("an entry of the list test needs the texts id and eval")
    folder = evaluation / test["eval"]
    rounds = _read(folder / "questions.json").get("rounds")
    if not isinstance(rounds, list) or not rounds:
        raise BadBench(f"{folder / 'questions.json'} has no rounds")
    read_rounds = tuple(_round(folder, number, one) for number, one in enumerate(rounds, 1))
    history: list[Message] = []
    if state is not None and test.get("session"):
        file = state / "agents" / str(test.get("agent")) / "sessions" / f"{test['session']}.jsonl"
        if file.is_file():
            history = conversation(file.read_text("utf-8"), str(file))
    return Day(test["id"], read_rounds, tuple(history))


def _round(folder: Path, number: int, one: Any) -> Round:
    where = f"{folder / 'questions.json'}, round {number}"
    if not isinstance(one, dict) or not isinstance(one.get("question"), str):
        raise BadBench(f"{where} has no question")
    rule, feedback = one.get("eval"), one.get("feedback")
    rule, feedback = rule if isinstance(rule, dict) else {}, feedback if isinstance(feedback, dict) else {}
    check: Choice | FileCheck
    if one.get("type") == "file_check":
        if not isinstance(rule.get("command"), str):
            raise BadBench(f"{where} checks a file, and its eval has no command")
        check = FileCheck(rule["command"], int(rule.get("expect_exit", 0)))
    elif one.get("type") == "multi_choice":
        options, right = rule.get("options"), letters(rule.get("answer"))
        if not isinstance(options, dict) or not right:
            raise BadBench(f"{where} is a choice, and its eval needs options and an answer")
        check = Choice(frozenset(map(str.upper, options)), right)
    else:
        raise BadBench(f"{where}: its type is {one.get('type')!r}, neither file_check nor multi_choice")
    option_feedback = feedback.get("options")
    return Round(
        id=str(one.get("id", number)),
        question=one["question"],
        check=check,
        correct=str(feedback.get("correct", "")),
        incorrect=str(feedback.get("incorrect", "")),
        options={str(key).upper(): str(value) for key, value in option_feedback.items()}
        if isinstance(option_feedback, dict)
        else {},
        updates=tuple(_update(folder, where, update) for update in one.get("update") or []),
    )


def _update(folder: Path, where: str, update: Any) -> Update:
    known = isinstance(update, dict) and update.get("type") in ("session", "workspace")
    if not known or not isinstance(update.get("path"), str):
        raise BadBench(f"{where}: an update needs the type session or workspace, and a path")
    action, source = update.get("action"), None
    if action not in ("new", "append", "insert", "delete"):
        raise BadBench(f"{where}: an update's action is {action!r}")
    if action != "delete":
        file = folder / str(update.get("source"))
        if not file.is_file():
            raise BadBench(f"{where}: an update's source {file} is not there")
        source = file.read_text("utf-8")
    return Update(update["type"], action, update["path"], source, update.get("param"))


def letters(answer: Any) -> frozenset[str]:
    """Returns the letters of an answer given as text, such as `A,C`, or as a list."""
    choices = answer if isinstance(answer, list) else [answer]
    return frozenset(letter.upper() for one in choices for letter in str(one or "") if letter.isalpha())


def _place(folder: Path, about: dict[str, Any], name: str) -> Path:
    """Returns a folder named in `all_tests.json`: below this folder or a parent, or by the end of its path."""
    folder_name = about.get(name)
    if not isinstance(folder_name, str):
        raise BadBench(f"{folder / 'all_tests.json'} has no {name}")
    parts = Path(folder_name).parts
    places = [base / folder_name for base in (folder, *folder.resolve().parents)]
    places += [folder / Path(*parts[at:]) for at in range(len(parts))]
    folder_of_rounds = next((place for place in places if place.is_dir()), None)
    if folder_of_rounds is None:
        raise BadBench(f"{name} of {folder / 'all_tests.json'} is {folder_name}, and no folder is there")
    return folder_of_rounds.resolve()


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadBench(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise BadBench(f"{file} contains no JSON object")
    return content


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()
