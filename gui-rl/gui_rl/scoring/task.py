"""Tasks in OSWorld's JSON: preparation, instruction, and evaluation of the final state.

Our own tasks have further fields: `pages` (pages made from a description), `solution` and `cheat` (scripts of
`gui_rl.episode.scripted`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.agents.protocol import Task
from slime.errors import ClawError

INFEASIBLE = "infeasible"
Json = Mapping[str, Any]


class TaskError(ClawError):
    """A task cannot be read, or needs something that is missing; the message names it."""


@dataclass(frozen=True)
class Check:
    """One function of an evaluator.

    Attributes:
        func: name of the metric.
        result, expected: names of getters with their settings.
    """

    func: str
    result: Json
    expected: Json
    options: Json = field(default_factory=dict)


@dataclass(frozen=True)
class GuiTask:
    """A task in OSWorld's JSON.

    Attributes:
        config, postconfig: steps {"type", "parameters"} before the episode and before the checks.
        conj: whether all checks must hold ("and"), or one ("or").
        infeasible: giving up is the correct answer.
    """

    name: str
    domain: str
    instruction: str
    config: Sequence[Json]
    postconfig: Sequence[Json]
    checks: Sequence[Check]
    conj: str
    infeasible: bool
    pages: Sequence[dict[str, Any]]
    solution: Sequence[Sequence[Any]]
    cheat: Sequence[Sequence[Any]]


def task_of(row: Task, tasks_dir: Path | None) -> GuiTask:
    """Returns the task of a prompt row: its metadata has `task_config`, or `domain` and `example_id` of a file in
    `tasks_dir`.

    Raises:
        TaskError: the row has neither, or the task cannot be read.
    """
    about = row.metadata
    domain = str(about.get("domain", ""))
    config = about.get("task_config")
    if config is None:
        if tasks_dir is None or not domain or not about.get("example_id"):
            raise TaskError("a row needs task_config, or domain and example_id with a folder of tasks")
        config = read_json(tasks_dir, f"{domain}/{about['example_id']}.json")
    return task_from(config, domain)


def read_json(folder: Path, name: str) -> Json:
    """Returns the content of a task file. Raises TaskError if it is not a task, or outside the folder."""
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise TaskError(f"{name} is outside {folder}")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(f"{file} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise TaskError(f"{file} contains no task")
    return document


def task_from(config: object, domain: str) -> GuiTask:
    """Parses a task. Raises TaskError."""
    if not isinstance(config, Mapping):
        raise TaskError("task_config is not an object")
    try:
        evaluator = config["evaluator"]
        checks = _checks(evaluator)
        return GuiTask(
            name=str(config["id"]),
            domain=domain,
            instruction=str(config["instruction"]),
            config=_steps(config.get("config", [])),
            postconfig=_steps(evaluator.get("postconfig", [])),
            checks=checks,
            conj=str(evaluator.get("conj", "and")),
            infeasible=evaluator["func"] == INFEASIBLE,
            pages=config.get("pages", ()),
            solution=config.get("solution", ()),
            cheat=config.get("cheat", ()),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise TaskError(f"task {config.get('id')}: {type(error).__name__} {error}") from error


def _steps(steps: Any) -> list[Json]:
    return [{"type": str(one["type"]), "parameters": dict(one.get("parameters", {}))} for one in steps]


def _checks(evaluator: Json) -> list[Check]:
    func = evaluator["func"]
    if func == INFEASIBLE:
        return []
    names = [func] if isinstance(func, str) else list(func)

    def each(key: str) -> list[Json]:
        entry = evaluator.get(key) or {}
        parts = [entry] if isinstance(entry, Mapping) else list(entry)
        parts = parts or [{}]
        return parts * len(names) if len(parts) == 1 else parts

    checks = list(zip(names, each("result"), each("expected"), each("options"), strict=True))
    return [Check(name, result, expected, options or {}) for name, result, expected, options in checks]
