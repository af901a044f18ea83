"""Runs the real OpenClaw with a separate home: its gateway, its commands, and a person's messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from claw_base.ports import free_port
from claw_lab.e2e.install import Installation

TOKEN = "e2e-token"
START_SECONDS, TURN_SECONDS, COMMAND_SECONDS = 120.0, 180.0, 120.0


class OpenClaw:
    """A context manager that runs OpenClaw's gateway. `home` is created for it."""

    def __init__(self, installation: Installation, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.env = installation.env(home)
        self.state = home / ".openclaw"
        (self.state / "workspace").mkdir(parents=True)
        self._gateway: subprocess.Popen[bytes] | None = None
        self.errors: list[str] = []
        self.write_config(
            {
                "gateway": {
                    "mode": "local",
                    "bind": "loopback",
                    "port": self.port,
                    "auth": {"mode": "token", "token": TOKEN},
                    "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
                },
                "agents": {"defaults": {"skipBootstrap": True}},
            }
        )

    def write_config(self, config: dict[str, Any]) -> None:
        (self.state / "openclaw.json").write_text(json.dumps(config, indent=1))

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.state / "openclaw.json").read_text())
        return config

    def __enter__(self) -> OpenClaw:
        self._log = open(self.home / "gateway.log", "ab")
        self._gateway = subprocess.Popen(
            ["openclaw", "gateway", "run", "--port", str(self.port)],
            env=self.env, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            cwd=self.home,
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._gateway.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=2.0).status_code < 500:
                    return self
            time.sleep(0.3)
        self.__exit__()
        raise RuntimeError(f"OpenClaw's gateway did not come up:\n{self.log_tail()}")

    def __exit__(self, *exc: object) -> None:
        if self._gateway is not None and self._gateway.poll() is None:
            os.killpg(self._gateway.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._gateway.wait(15)
            if self._gateway.poll() is None:
                os.killpg(self._gateway.pid, signal.SIGKILL)
                self._gateway.wait(15)
        self._log.close()

    def log_tail(self, size: int = 3000) -> str:
        return (self.home / "gateway.log").read_text(errors="replace")[-size:]

    def say(self, person: str, text: str) -> str:
        """Sends one message through the gateway; `person` names the conversation. A failure is added to `errors`."""
        body = {"model": "openclaw/default", "user": person, "messages": [{"role": "user", "content": text}]}
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{self.port}/v1/chat/completions",
                headers={"Authorization": f"Bearer {TOKEN}"}, json=body, timeout=TURN_SECONDS, trust_env=False,
            )  # fmt: skip
            answer.raise_for_status()
            return str(answer.json()["choices"][0]["message"]["content"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.errors.append(f"{person}: {text!r}: {type(error).__name__}: {error}")
            return ""

    def say_local(self, session_id: str, text: str) -> str:
        """Sends one message by `openclaw agent --local`, which needs no gateway."""
        done = self.command("agent", "--local", "--session-id", session_id, "--message", text, "--json")
        if done.returncode:
            self.errors.append(f"{session_id}: {text!r}: exit {done.returncode}: {done.stderr[-300:]}")
        return done.stdout

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the running gateway, such as sessions.reset."""
        done = self.command(
            "gateway", "call", method, "--params", json.dumps(params), "--port", str(self.port), "--token", TOKEN,
            "--json", "--timeout", "60000",
        )  # fmt: skip
        if done.returncode:
            self.errors.append(f"{method}: {(done.stderr or done.stdout)[-300:]}")
            return {}
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        return answer

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["openclaw", *words], env=self.env, cwd=self.home, capture_output=True, text=True, timeout=COMMAND_SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
