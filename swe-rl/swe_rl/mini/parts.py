"""The model and the environment for mini-swe-agent's agent: the model gets each answer from a callback, and the
environment runs commands in a sandbox."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml

from slime.agents import Tool
from slime.agents.protocol import Message
from slime.agents.tool_calls import loose_calls
from slime.errors import ConfigError
from slime.sandbox import Finished
from swe_rl.repository import installed

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
BLOCK = r"```mswea_bash_command\s*\n(.*?)\n```"
"""Default expression by which the package's text-based models find a command."""


@dataclass
class AskingModel:
    """Implements the package's `Model`. The configuration decides whether calls are tool calls or a block of text.

    Attributes:
        settings: the section `model` of the configuration.
        ask: sends messages that are new to the model, and waits for its answer.
    """

    settings: Mapping[str, Any]
    ask: Callable[[list[Message]], str]
    shown_count: int = 0
    format_errors: int = 0
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def by_text(self) -> bool:
        return writes_text(self.settings)

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """Returns the answer with its actions. Raises the package's FormatError."""
        new = [{"role": one["role"], "content": one["content"]} for one in messages[self.shown_count :]]
        text = self.ask(new)
        self.shown_count = len(messages) + 1  # the answer itself is not sent back to the model
        try:
            actions = self._actions(text)
        except module("minisweagent.exceptions").FormatError:
            self.format_errors += 1
            self.shown_count -= 1  # the agent does not keep an answer that it could not parse
            raise
        return {"role": "assistant", "content": text, "extra": {"actions": actions, "cost": 0.0}}

    def _actions(self, text: str) -> list[dict[str, Any]]:
        template = self.settings["format_error_template"]
        if self.by_text:
            parse = module("minisweagent.models.utils.actions_text").parse_regex_actions
            regex = self.settings.get("action_regex", BLOCK)
            actions: list[dict[str, Any]] = parse(text, action_regex=regex, format_error_template=template)
            return actions
        calls = [
            SimpleNamespace(
                id=f"call_{next(self._ids)}",
                function=SimpleNamespace(name=name, arguments=json.dumps(arguments)),
            )
            for name, arguments in loose_calls(text)
        ]
        parse = module("minisweagent.models.utils.actions_toolcall").parse_toolcall_actions
        return parse(calls, format_error_template=template)

    def format_message(self, **message: Any) -> dict[str, Any]:
        return message

    def format_observation_messages(
        self,
        message: dict[str, Any],
        outputs: list[dict[str, Any]],
        template_vars: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        template = self.settings["observation_template"]
        rendered: list[dict[str, Any]]
        if self.by_text:
            render = module("minisweagent.models.utils.actions_text").format_observation_messages
            rendered = render(outputs, observation_template=template, template_vars=template_vars)
        else:
            render = module("minisweagent.models.utils.actions_toolcall").format_toolcall_observation_messages
            rendered = render(
                actions=message["extra"]["actions"],
                outputs=outputs,
                observation_template=template,
                template_vars=template_vars,
            )
        return rendered

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def writes_text(settings: Mapping[str, Any]) -> bool:
    """Returns whether commands are blocks in the text; otherwise, they are tool calls."""
    return "action_regex" in settings or "triple backticks" in settings.get("format_error_template", "")


def tools_of(settings: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Returns the tools that the model may call."""
    if writes_text(settings):
        return ()
    about = module("minisweagent.models.utils.actions_toolcall").BASH_TOOL["function"]
    return (Tool(about["name"], about["description"], about["parameters"]),)


@dataclass
class BoxedCommands:
    """Implements the package's `Environment`: runs each command in a separate sandbox, in the repository's folder."""

    run: Callable[[str], Finished]
    place: str

    def execute(self, action: Mapping[str, Any], cwd: str = "") -> dict[str, Any]:
        """Raises the package's Submitted for the command that ends the episode."""
        done = self.run(str(action.get("command", "")))
        code = -1 if done.exit_code is None else done.exit_code
        output = {"output": done.output, "returncode": code, "exception_info": done.error or ""}
        first, _, rest = done.output.lstrip().partition("\n")
        if first.strip() == SUBMIT and code == 0:
            about = {"exit_status": "Submitted", "submission": rest}
            raise module("minisweagent.exceptions").Submitted(
                {"role": "exit", "content": rest, "extra": about}
            )
        return output

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {"cwd": self.place, **platform.uname()._asdict()}

    def serialize(self) -> dict[str, Any]:
        return {}


ALONE = ("mini-swe-agent==2.4.6",)
"""Installed without its dependencies: most of these 80 packages connect to models and are not used here."""
WITH = ("platformdirs==4.14.7", "python-dotenv==1.2.4", "rich==15.0.0")
SECTIONS = ("agent", "model")


@functools.cache
def load() -> None:
    """Makes `minisweagent` importable. An installed package takes precedence.

    Raises:
        ConfigError: the package could not be fetched.
    """
    if importlib.util.find_spec("minisweagent") is None:
        version = "{}.{}".format(*sys.version_info)
        sys.path.append(str(installed(version, WITH, ALONE)))
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    module("minisweagent")


def module(name: str) -> ModuleType:
    """Returns a module of the package. Raises ConfigError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"mini-swe-agent cannot be imported: {error}") from error


@functools.cache
def configuration(name: str) -> dict[str, Any]:
    """Returns one of the package's configurations ("swebench", "swebench_backticks") or a custom file with the same
    sections.

    Raises:
        ConfigError: the configuration does not exist, or lacks the section of the agent or the model.
    """
    load()
    get = module("minisweagent.config").get_config_from_spec
    try:
        content = get(Path(name))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"SWE_CONFIG_PATH {name}: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in SECTIONS):
        raise ConfigError(f"SWE_CONFIG_PATH {name}: it needs the sections {' and '.join(SECTIONS)}")
    return content
