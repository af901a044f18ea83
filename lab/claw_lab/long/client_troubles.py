"""Runs real agents that meet a truncated tool call, a rate limit and a conversation longer than the context.

    bash lab/claw_lab/long/client_troubles.sh [codex claude opencode hermes cline qwen pi aider]

The programs must be on PATH (the script installs them). Each has its own home and talks to the real gateway with a
scripted engine, one process for each message, and continues its session. Prints one JSON line for each client: the
result of each message, and the number of its requests. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from claw_lab.e2e.serving import Serving

SECONDS = 240
MOST_REQUESTS = 25
"""Maximum requests for one message; an agent with more repeats itself."""
FILLER = "word " * 11_000
"""22,000 tokens of the tiny model, whose context has 65,536."""
MODEL = "tiny-claw"


@dataclass(frozen=True)
class Agent:
    """An agent program.

    Attributes:
        first, further: words of the command before the text, of the first message and of further ones; {url} is the
            server's.
        settings: writes its files in a home.
        tools: whether it can run commands.
        connect: whether `openclaw.connect` writes its settings.
    """

    first: tuple[str, ...]
    further: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[Path, str], None] | None = None
    tools: bool = True
    connect: bool = False


def _pi(home: Path, url: str) -> None:
    own = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "none"}
    model = {"id": MODEL, "contextWindow": 1_000_000, "maxTokens": 2000}
    _write(home / ".pi/agent/models.json", {"providers": {"own": {**own, "models": [model]}}})


def _write(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


_CODEX = ("--skip-git-repo-check", "-c", 'sandbox_mode="danger-full-access"')
_PI = ("pi", "--model", f"own/{MODEL}")
_QWEN = (
    "--auth-type",
    "openai",
    "--openai-api-key",
    "none",
    "--openai-base-url",
    "{url}/v1",
    "-m",
    MODEL,
    "--yolo",
)
_AIDER = ("aider", "--model", f"openai/{MODEL}", "--openai-api-base", "{url}/v1", "--openai-api-key", "none")
_AIDER += (
    "--yes-always",
    "--no-check-update",
    "--no-show-model-warnings",
    "--no-analytics",
    "--no-stream",
    "--no-git",
)
AGENTS = {
    "codex": Agent(
        ("codex", "exec", *_CODEX), ("codex", "exec", "resume", "--last", *_CODEX), connect=True,
    ),
    "claude": Agent(
        ("claude", "--allowedTools=Bash", "-p"), ("claude", "--allowedTools=Bash", "--continue", "-p"),
        {"IS_SANDBOX": "1"}, connect=True,
    ),
    "opencode": Agent(("opencode", "run"), ("opencode", "run", "--continue"), connect=True),
    "hermes": Agent(
        ("hermes", "chat", "--yolo", "-Q", "-q"), ("hermes", "chat", "--yolo", "-Q", "--continue", "-q"), connect=True,
    ),
    "cline": Agent(
        ("cline", "-P", "openai-compatible", "-m", MODEL), ("cline", "-P", "openai-compatible", "-m", MODEL),
    ),
    "qwen": Agent(("qwen", *_QWEN), ("qwen", *_QWEN, "--continue")),
    "pi": Agent((*_PI, "-p"), (*_PI, "--continue", "-p"), settings=_pi),
    "aider": Agent((*_AIDER, "--message"), (*_AIDER, "--restore-chat-history", "--message"), tools=False),
}  # fmt: skip


class Talk:
    """One agent's conversation, in its own folder."""

    def __init__(self, name: str, folder: Path, serving: Serving) -> None:
        self.agent, self._serving = AGENTS[name], serving
        self._name, self._home, self._work = name, folder / name, folder / name / "work"
        self._work.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "."], cwd=self._work, check=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
        }
        paths = {
            "HOME": str(self._home),
            "PWD": str(self._work),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'base'}",
            "NO_COLOR": "1",
        }
        self._env = {**kept, **paths, **self.agent.variables}
        self.problems: list[str] = []
        self.came_to: dict[str, str] = {}
        self._count = 0
        if self.agent.connect:
            self._run([sys.executable, "-m", "openclaw.connect", name, "--url", serving.url])
        if self.agent.settings is not None:
            self.agent.settings(self._home, serving.url)
        if name == "cline":
            words = ["-p", "openai-compatible", "-k", "none", "-m", MODEL, "-b", f"{serving.url}/v1"]
            self._run(["cline", "auth", *words])
        if name != "aider":
            self._env.pop("PYTHONPATH")

    def _run(self, words: list[str]) -> tuple[int, str]:
        """Returns (exit status, output); 124 after a time-out."""
        try:
            done = subprocess.run(
                words, cwd=self._work, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return 124, (error.stdout or b"").decode(errors="replace")
        with open(self._home / "log", "ab") as log:
            log.write(f"$ {' '.join(words)[:300]}\n".encode() + done.stdout + b"\n")
        return done.returncode, done.stdout.decode(errors="replace")

    def say(self, label: str, text: str, expected: str | None) -> None:
        """Sends a text; checks that the output contains `expected` and the exit status is 0. None: any result in time
        is accepted."""
        words = self.agent.further if self._count else self.agent.first
        self._count += 1
        before = len(self._serving.passages())
        status, printed = self._run([*(word.replace("{url}", self._serving.url) for word in words), text])
        asked = [passage.status for passage in self._serving.passages()[before:]]
        shown = expected is not None and expected in printed
        self.came_to[label] = f"exit {status}, answers {asked}, {printed.strip()[-100:]!r}"
        if (expected is not None and (status or not shown)) or status == 124 or len(asked) > MOST_REQUESTS:
            self.problems.append(f"{label}: {self.came_to[label]}")

    def go(self) -> None:
        """Runs the whole conversation."""
        self.say("hello", "hello there", "You said: hello there")
        if self.agent.tools:
            self.say("tool", "RUN touch ran.txt", "The tool answered")
            self.say("cut call", "CUT touch never.txt", "never.txt")
            if not (self._work / "ran.txt").exists() or (self._work / "never.txt").exists():
                self.problems.append("a sound call was not run, or a cut one was")
        self._serving.relay.refusals = 1
        self.say("rate limit", "Once more", "You said: Once more")
        if self._serving.relay.refusals:
            self.problems.append("no request met the rate limit")
        self._serving.relay.refusals = 0
        for number in range(3):
            self.say(f"filler {number}", f"Keep these words: {FILLER}", None)
        self.say("after overflow", "Are you there?", None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="*", choices=[*AGENTS, []], default=[])
    names = parser.parse_args().agents or list(AGENTS)
    wrong = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, Serving(Path(name)) as serving:
        for agent in names:
            began, talk = time.monotonic(), Talk(agent, Path(name), serving)
            talk.go()
            result: dict[str, Any] = {"client": agent, "seconds": round(time.monotonic() - began)}
            print(json.dumps({**result, "problems": talk.problems, "came to": talk.came_to}), flush=True)
            wrong = wrong or bool(talk.problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
