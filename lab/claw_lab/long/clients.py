"""Runs real agents with the real gateway and a scripted engine.

    bash lab/claw_lab/long/clients.sh codex claude opencode hermes

The programs must be on PATH (`clients.sh` installs them). Each is connected by `openclaw.connect` in its own home,
talks (one process for each message, which continues the session), and its settings are removed. All use one server,
whose weights change every second. Prints one JSON line for each client; exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from claw_lab.e2e import checks
from claw_lab.e2e.serving import EngineCall, Serving
from openclaw.common.messages import text_of
from openclaw.connect.own_file import NOTES
from openclaw.connect.settings import WRITTEN
from openclaw.types import Turn

SECONDS = 180
SAYS = ("hello there", "RUN echo one", "SLOW", "Thanks.")
"""Messages; see `scripted_engine.py`."""
FOLDERS = {name: own.folder.removeprefix("~/") for name, own in WRITTEN.items()}
MINE = {"json": '{"mine":  {"x": 1}}\n', "toml": "# mine\n[mine]\nx = 1\n", "yaml": "# mine\nmine:\n  x: 1\n"}
"""A user's own settings, which must be unchanged afterwards, byte by byte."""


@dataclass(frozen=True)
class Agent:
    """An agent program.

    Attributes:
        first, further: words of the command before the text, of the first message and of further ones.
        runner: its tool that runs a command.
        titles: whether it asks the model for a title.
        variables: additional environment variables.
        settings: a user's settings for it, if it rejects or extends unknown ones.
    """

    name: str
    first: tuple[str, ...]
    further: tuple[str, ...]
    runner: str
    titles: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""


AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            "codex", ("codex", "exec", "--skip-git-repo-check"),
            ("codex", "exec", "resume", "--last", "--skip-git-repo-check"), "exec_command",
        ),
        Agent(
            "claude", ("claude", "--allowedTools=Bash", "-p"), ("claude", "--allowedTools=Bash", "--continue", "-p"),
            "Bash", True, {"IS_SANDBOX": "1"},
        ),
        Agent(
            "opencode", ("opencode", "run"), ("opencode", "run", "--continue"), "bash", True,
            settings='{"$schema": "https://opencode.ai/config.json",  "autoupdate": false}\n',
        ),
        Agent(
            "hermes", ("hermes", "chat", "--yolo", "-Q", "-q"), ("hermes", "chat", "--yolo", "-Q", "--continue", "-q"),
            "terminal",
        ),
    )
}  # fmt: skip


class Home:
    """A home for one agent, with settings of a user, and the errors there."""

    def __init__(self, agent: Agent, folder: Path) -> None:
        self.agent, self.folder = agent, folder / agent.name
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "."], cwd=self.work, check=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
        }
        self.env = {
            **kept,
            "HOME": str(self.folder),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'base'}",
            "NO_COLOR": "1",
            **agent.variables,
        }
        for name in (
            "XDG_CONFIG_HOME",
            "CODEX_HOME",
            "CLAUDE_CONFIG_DIR",
            "OPENCODE_CONFIG_DIR",
            "HERMES_HOME",
        ):
            self.env.pop(name, None)
        own = WRITTEN[agent.name]
        self.file = self.folder / FOLDERS[agent.name] / own.names[0]
        self.file.parent.mkdir(parents=True)
        self.own_settings = agent.settings or MINE[own.form]
        self.file.write_text(self.own_settings)
        self.problems: list[str] = []

    def connect(self, *words: str) -> None:
        """Connects the agent as a user does."""
        command = [sys.executable, "-m", "openclaw.connect", self.agent.name, *words]
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode:
            self.problems.append(f"connect {' '.join(words)}: {done.stderr[-500:]}")

    def say(self, text: str, words: Sequence[str]) -> None:
        expected = {"RUN": "one", "SLO": "slow slow"}.get(text[:3], f"You said: {text}")
        with open(self.folder / "log", "ab") as log:
            done = subprocess.run(
                [*words, text], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                timeout=SECONDS, check=False,
            )  # fmt: skip
            log.write(done.stdout)
        if done.returncode or expected not in done.stdout.decode(errors="replace"):
            self.problems.append(f"{text!r}: exit {done.returncode}, printed {done.stdout[-300:]!r}")

    def talk(self) -> None:
        for number, text in enumerate(SAYS):
            self.say(text, self.agent.further if number else self.agent.first)

    def undo(self) -> None:
        self.connect("--remove")
        if self.file.read_text() != self.own_settings or (self.file.parent / NOTES).exists():
            self.problems.append(f"after --remove {self.file} is not as it was")


def expected_turns(agent: Agent) -> list[tuple[str, str | None]]:
    """Returns the beginning of each answer, and a part of the message after it; None: nothing followed."""
    return [
        ("You said: hello there", "RUN echo one"),
        (agent.runner, "one"),
        ("The tool answered:", "SLOW"),
        ("SLOW slow", "Thanks."),
        ("You said: Thanks.", None),
    ]


def turn_problems(agent: Agent, turns: Sequence[Turn]) -> list[str]:
    """Returns the differences between the conversation and its stored turns."""
    main = [turn for turn in turns if turn.turn_type == "main"]
    titles = sum(turn.turn_type == "side" for turn in turns)
    problems = [] if titles >= agent.titles else ["its request for a title is no side turn"]
    if len({turn.session_id for turn in main}) != 1:
        problems.append(f"one talk is in the sessions {sorted({turn.session_id for turn in main})}")
    if len(main) != len(expected_turns(agent)):
        return [*problems, f"{len(main)} main turns, not {len(expected_turns(agent))}"]
    for turn, (answer, following) in zip(main, expected_turns(agent), strict=True):
        calls = turn.response_message.get("tool_calls")
        shown = calls[0]["function"]["name"] if calls else text_of(turn.response_message)
        state = None if turn.next_state is None else "\n".join(map(text_of, turn.next_state)).strip('"\n')
        exact = following == state or (bool(calls) and following is not None and following in (state or ""))
        if not shown.startswith(answer) or not exact:
            problems.append(f"{shown[:60]!r} was followed by {str(state)[:80]!r}, not {following!r}")
    if len(main[3].version_spans) < 2:
        problems.append("no update fell into the slow answer")
    return problems


def of_agent(agent: Agent, turns: Sequence[Turn]) -> list[Turn]:
    """Returns the agent's turns, identified by the folder in its prompts or by its name there, without the connection
    test."""
    signs = {"codex": "Codex CLI", "claude": "Claude", "opencode": "opencode", "hermes": "Hermes Agent"}
    named = {
        turn.session_id
        for turn in turns
        if any(
            signs[agent.name] in text_of(one)
            for one in turn.messages
            if one["role"] in ("system", "developer")
        )
    }
    return [turn for turn in turns if turn.session_id in named and turn.session_id != checks.CONNECT_TEST]


def report(
    home: Home, turns: Sequence[Turn], calls: Sequence[EngineCall], serving: Serving
) -> dict[str, Any]:
    own = of_agent(home.agent, turns)
    names = {_unique(turn.completion_id): turn.completion_id for turn in own}
    sampled = [
        replace(call, completion_id=names[_unique(call.completion_id)])
        for call in calls
        if _unique(call.completion_id) in names
    ]
    problems = [
        *home.problems,
        *turn_problems(home.agent, own),
        *checks.storage_problems(own, sampled),
    ]
    return {
        "client": home.agent.name,
        "main_turns": sum(turn.turn_type == "main" for turn in own),
        "side_turns": sum(turn.turn_type == "side" for turn in own),
        "answered": checks.answered(own),
        "first_prompt_tokens": max((len(turn.prompt_ids) for turn in own[:2]), default=0),
        "weight_versions": serving.versions,
        "problems": problems,
    }


def _unique(completion_id: str) -> str:
    """Returns an id without the prefix of its dialect."""
    return re.split("[-_]", completion_id)[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description="Real agents against the gateway.")
    parser.add_argument("agents", nargs="+", choices=AGENTS)
    names = parser.parse_args().agents
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, Serving(Path(name)) as serving:
        homes = [Home(AGENTS[one], Path(name)) for one in names]

        def run(home: Home) -> None:
            home.connect("--url", serving.url)
            home.talk()
            home.undo()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, homes))
        turns, calls, refused = serving.turns(), serving.engine_calls(), checks.refused(serving.passages())
        results = [report(home, turns, calls, serving) for home in homes]
    results[-1]["problems"] += refused
    for result in results:
        print(json.dumps(result), flush=True)
    print(f"{time.monotonic() - began:.0f} s, {serving.versions} weight versions", flush=True)
    return 1 if any(result["problems"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
