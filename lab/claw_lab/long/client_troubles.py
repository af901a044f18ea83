"""Runs real agents that meet a truncated tool call, errors and a conversation longer than the context.

    bash lab/claw_lab/long/client_troubles.sh [codex claude opencode kilo hermes cline qwen pi aider]

The programs must be on PATH (the script installs them). Each has its own home and talks to the real gateway with a
scripted engine, one process for each message, and continues its session. Prints one JSON line for each client: the
result of each message, and what the stored turns took for a person's words. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from claw_lab import ROOT
from claw_lab.e2e.relay import ENGINE_ERROR, RATE_LIMIT
from claw_lab.e2e.serving import Serving
from openclaw.common.messages import text_of
from openclaw.types import Turn

SECONDS = 240
MOST_REQUESTS = 25
"""Maximum requests for one message; an agent with more repeats itself."""
FILLER = "word " * 11_000
"""22,000 tokens of the tiny model, whose context has 65,536."""
MODEL = "tiny-claw"
COMPLAINT = "That is wrong, please answer in one sentence."


@dataclass(frozen=True)
class Agent:
    """An agent program.

    Attributes:
        first, further: words of the command before the text, of the first message and of further ones; the same if
            each message begins a task. {url} is the server's.
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


def _kilo(home: Path, url: str) -> None:
    model = {"name": MODEL, "tool_call": True, "limit": {"context": 65_536, "output": 2000}}
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    own = {"npm": "@ai-sdk/openai-compatible", "name": "own", "options": options, "models": {MODEL: model}}
    chosen = {"model": f"own/{MODEL}", "small_model": f"own/{MODEL}"}
    _write(home / ".config/kilo/kilo.json", {"provider": {"own": own}, **chosen})


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
    "kilo": Agent(("kilo", "run", "--auto"), ("kilo", "run", "--auto", "--continue"), settings=_kilo),
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
        self._texts: list[str] = []
        self._stored_before = len(serving.turns())
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
        words = self.agent.further if self._texts else self.agent.first
        self._texts.append(text)
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
        self._serving.relay.refusals = [RATE_LIMIT, ENGINE_ERROR]
        self.say("errors", "Once more", "You said: Once more")
        if self._serving.relay.refusals:
            self.problems.append("no request met the rate limit and the error")
        self._serving.relay.refusals = []
        httpx.post(f"{self._serving.engine_url}/fail_next", json={"status": 500}).raise_for_status()
        self.say("complaint", COMPLAINT, f"You said: {COMPLAINT}")
        self.say("after it", "Thanks a lot.", "You said: Thanks a lot.")
        if self.agent.further != self.agent.first:
            self.problems += next_state_problems(self._texts, self.turns())
        for number in range(3):
            self.say(f"filler {number}", f"Keep these words: {FILLER}", None)
        self.say("after overflow", "Are you there?", None)
        self.problems += judged_problems(self._texts, self.turns())

    def turns(self) -> list[Turn]:
        """Returns the stored main turns of this agent, without the connection test."""
        turns = self._serving.turns()[self._stored_before :]
        return [turn for turn in turns if turn.turn_type == "main"]


def user_texts(turns: Sequence[Turn]) -> list[str]:
    """Returns the texts in the next states of these turns that count as a person's."""
    return [
        text_of(message).strip('"\n')
        for turn in turns
        for message in turn.next_state or []
        if message["role"] == "user"
    ]


def next_state_problems(sent: Sequence[str], turns: Sequence[Turn]) -> list[str]:
    """Returns problems of a conversation that fits the context: one session, and each text after the first is the
    next state of one turn."""
    sessions, texts = {turn.session_id for turn in turns}, user_texts(turns)
    problems = [] if len(sessions) == 1 else [f"one conversation is in {len(sessions)} sessions"]
    return problems if texts == list(sent[1:]) else [*problems, f"next states have {texts}, not {sent[1:]}"]


def judged_problems(sent: Sequence[str], turns: Sequence[Turn]) -> list[str]:
    """Returns the texts that count as a person's, and were not sent."""
    return [
        f"a person's words: {text[:200]!r}" for text in user_texts(turns) if text not in map(str.strip, sent)
    ]


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
