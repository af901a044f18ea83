"""verifiers 0.4 tasksets as environments: prompts, tools, games and rewards are unchanged."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from slime.agents.foreign.worker import ForeignEnvironment, Worker
from slime.errors import ConfigError

_HAS = "import importlib.util as u, sys; sys.exit(u.find_spec('verifiers.v1') is None)"


class VerifiersEnvironments:
    """Makes environments of one taskset: `agent(VerifiersEnvironments(...))`, or a pool's `--environment`.

    All episodes share one process of `python`, which starts with the first of them.

    Args:
        env: verifiers' configuration of an environment, such as {"taskset": {"id": "textarena", "game": "Hangman-v0"}}.
        python: path of the Python in whose environment verifiers and the taskset are installed.
        harness: verifiers' configuration of the default harness of agents; by default a chat loop in the worker.
        solved_at: the reward from which a task counts as solved.
        environment: variables of the process, in addition to PATH, HOME and the like.
        seconds: time-out of verifiers' answer to a turn.

    Raises:
        ConfigError: there is no such Python, or no verifiers 0.4 in it.
    """

    def __init__(
        self,
        env: Mapping[str, Any],
        *,
        python: str,
        harness: Mapping[str, Any] | None = None,
        solved_at: float = 1.0,
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
    ) -> None:
        if shutil.which(python) is None:
            raise ConfigError(f"the Python for verifiers, {python}, does not exist")
        if subprocess.run([python, "-c", _HAS], capture_output=True, check=False).returncode:
            raise ConfigError(
                f"{python} has no verifiers 0.4; install it: {python} -m pip install 'verifiers==0.4.*'"
            )
        options = {"env": dict(env), "harness": dict(harness or {}), "solved_at": solved_at}
        self.worker = Worker("verifiers", python, options, environment, seconds)

    def __call__(self) -> ForeignEnvironment:
        return ForeignEnvironment(self.worker)

    async def rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Returns rows for --prompt-data. `prompt` is only for display; an episode is created from the metadata.

        Raises:
            ConfigError, EnvironmentAway: the taskset cannot be loaded.
        """
        rows = await (await self.worker.process()).ask("tasks", first=first, count=count)
        return [_row(number, task) for number, task in enumerate(rows["rows"], first)]


def _row(number: int, task: Mapping[str, Any]) -> dict[str, Any]:
    name = str(task.get("name") or task.get("id") or number)
    about = {"task_id": name, "verifiers_task": dict(task)}
    return {"prompt": task.get("prompt") or name, "metadata": about}
