"""The real OpenClaw against the real gateway, with or without the plug-in.

    python openclaw-test/e2e/run.py                       prints one JSON line; exit status 1 when something is wrong
    python openclaw-test/e2e/run.py --without-extension

Installs Node and OpenClaw from npm first (see install.py). The engine is scripted (see scripted_engine.py), because the
tiny model cannot call OpenClaw's tools; its version changes every second, while answers stream.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "openclaw-test"), str(ROOT / "slime")]

from e2e.client import OpenClaw  # noqa: E402
from e2e.install import Installation, NotHere, ensure  # noqa: E402
from e2e.scenario import AFTER_COMPACTION, AFTER_RESET, LOCAL, SCRIPT, Expected, Say, mismatches  # noqa: E402
from harness import free_port  # noqa: E402
from openclaw.records import Turn, TurnState  # noqa: E402
from openclaw.store import RolloutStore  # noqa: E402

MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"
READY_SECONDS = 60.0
SWITCH_SECONDS = 1.0
"""Between changes of the weight version: an answer of 3 seconds sees several."""


class Serving:
    """The gateway with its scripted engine; `folder` holds its store and logs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engine_port, self.port = folder, free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.versions = 0
        self._children: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()

    def __enter__(self) -> Serving:
        engine = [
            str(ROOT / "openclaw-test/e2e/scripted_engine.py"),
            "--model-path",
            str(MODEL),
            "--port",
            str(self.engine_port),
        ]
        gateway = ["-m", "openclaw.server", "--model-path", str(MODEL), "--port", str(self.port), "--engine-url",
                   self.engine_url, "--enable-rl-intercept", "--rl-buffer-dir", str(self.folder / "buffer")]  # fmt: skip
        for name, command in (("engine", engine), ("gateway", gateway)):
            with open(self.folder / f"{name}.log", "ab") as log:
                self._children.append(
                    subprocess.Popen(
                        [sys.executable, *command], env=self._env(), stdout=log, stderr=subprocess.STDOUT
                    )
                )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", timeout=2.0).status_code == 200:
                    threading.Thread(target=self._switch, daemon=True).start()
                    return self
            time.sleep(0.2)
        self.__exit__()
        raise RuntimeError(
            f"the gateway did not come up: {(self.folder / 'gateway.log').read_text()[-2000:]}"
        )

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait(20)

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"

    def turns(self) -> list[Turn]:
        """All stored turns, oldest first."""
        store = RolloutStore(self.folder / "buffer")
        try:
            fates = store.newest_fates(10_000)[::-1]
            return [
                turn
                for fate in fates
                if (turn := store.get_turn_by_completion(fate.completion_id)) is not None
            ]
        finally:
            store.close()

    def _switch(self) -> None:
        """A new weight version every second, whatever streams."""
        while not self._stop.wait(SWITCH_SECONDS):
            with contextlib.suppress(httpx.HTTPError):
                body = {"weight_version": str(self.versions + 1)}
                httpx.post(f"{self.engine_url}/switch_weights", json=body, timeout=5.0).raise_for_status()
                self.versions += 1

    @staticmethod
    def _env() -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'openclaw-test'}"}


class Talk:
    """Says the script and keeps account of what the server must have stored."""

    def __init__(self, openclaw: OpenClaw) -> None:
        self.openclaw = openclaw
        self.expected: dict[str, Expected] = {}
        self.seconds: list[float] = []

    def through_gateway(self, script: tuple[Say, ...]) -> None:
        for person, text in script:
            began = time.monotonic()
            self.openclaw.say(person, text)
            self.seconds.append(time.monotonic() - began)
            self.expected.setdefault(person, Expected()).said(text)

    def locally(self, script: tuple[Say, ...]) -> None:
        for session, text in script:
            self.openclaw.say_local(session, text)
            self.expected.setdefault(session, Expected()).said(text)

    def session_of(self, person: str) -> str:
        """OpenClaw's session id of a conversation."""
        if person in dict(LOCAL):
            return person
        for session in self.openclaw.call("sessions.list").get("sessions", []):
            if session["key"].endswith(f":{person}"):
                return str(session["sessionId"])
        return ""


def connect(openclaw: OpenClaw, url: str, extension: bool) -> None:
    """As a person would: python -m openclaw.connect. Raises CalledProcessError."""
    words = [sys.executable, "-m", "openclaw.connect", "--url", f"{url}/v1"]
    words += [] if extension else ["--no-extension"]
    env = {**openclaw.env, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=120)


def converse(talk: Talk) -> dict[str, str]:
    """The whole scenario; returns the session id of each conversation."""
    openclaw = talk.openclaw
    (openclaw.state / "workspace" / "notes.txt").write_text("these are the notes.txt\n")
    with openclaw:
        talk.through_gateway(SCRIPT)
        sessions = {person: talk.session_of(person) for person in talk.expected}
        openclaw.call("sessions.compact", key="agent:main:openai-user:alice")
        talk.through_gateway(AFTER_COMPACTION)
        openclaw.call("sessions.reset", key="agent:main:openai-user:bob")
        talk.expected["bob, after the reset"] = Expected()
        for person, text in AFTER_RESET:
            openclaw.say(person, text)
            talk.expected["bob, after the reset"].said(text)
        sessions["bob, after the reset"] = sessions["bob"]
        openclaw.command(
            "system", "event", "--text", "wake up", "--mode", "now", "--token", "e2e-token", "--url",
            f"ws://127.0.0.1:{openclaw.port}",
        )  # fmt: skip
        time.sleep(8)  # the heartbeat's own turn
    talk.locally(LOCAL)
    return sessions | {"dave": "dave"}


def judge(talk: Talk, sessions: dict[str, str], turns: list[Turn]) -> list[str]:
    """Everything that is not as it must be."""
    problems = list(talk.openclaw.errors)
    by_conversation: dict[str, list[Turn]] = {name: [] for name in talk.expected}
    main = [turn for turn in turns if turn.turn_type == "main"]
    for turn in main:
        by_conversation.setdefault(conversation_of(turn, sessions, talk, by_conversation), []).append(turn)
    for name, expected in talk.expected.items():
        problems += mismatches(name, expected, by_conversation[name])
    for turn in by_conversation.get("", []):
        problems.append(
            f"main turn of an unknown session {turn.session_id}: {str(turn.response_message)[:80]}"
        )
    side = [turn for turn in turns if turn.turn_type == "side" and turn.session_id != "openclaw-connect-test"]
    if len(side) < 2:
        problems.append(f"{len(side)} side turns; the compaction and the heartbeat make two")
    slow = [turn for turn in main if str(turn.response_message.get("content")).startswith("SLOW")]
    if not all(len(turn.version_spans) >= 2 for turn in slow):
        problems.append("a slow answer was written by one version only: no update fell into it")
    bad = [turn.id for turn in main if len(turn.completion_ids) != len(turn.completion_log_probs or [])]
    return problems + [f"turn {turn}: ids and log-probs differ in number" for turn in bad]


def conversation_of(turn: Turn, sessions: dict[str, str], talk: Talk, filled: dict[str, list[Turn]]) -> str:
    """The conversation whose session this is; bob's goes on under the same id after its reset."""
    names = [name for name, session in sessions.items() if session == turn.session_id]
    for name in names:
        if len(filled[name]) < len(talk.expected[name].calls):
            return name
    return names[-1] if names else ""


def run(installation: Installation, folder: Path, extension: bool) -> dict[str, Any]:
    """One run; the result is what the JSON line says."""
    began = time.monotonic()
    with Serving(folder) as serving:
        openclaw = OpenClaw(installation, folder / "home")
        connect(openclaw, serving.url, extension)
        talk = Talk(openclaw)
        sessions = converse(talk)
        turns = serving.turns()
        problems = judge(talk, sessions, turns)
    states = [turn.state for turn in turns if turn.turn_type == "main"]
    return {
        "extension": extension,
        "openclaw": installation.version,
        "said": len(SCRIPT) + len(AFTER_COMPACTION) + len(AFTER_RESET) + len(LOCAL),
        "main_turns": len(states),
        "side_turns": sum(turn.turn_type == "side" for turn in turns),
        "answered": sum(
            state is not TurnState.CAPTURED and state is not TurnState.EXPIRED for state in states
        ),
        "weight_versions": serving.versions,
        "client_errors": len(talk.openclaw.errors),
        "seconds_a_turn_p50": round(statistics.median(talk.seconds), 2),
        "seconds": round(time.monotonic() - began, 1),
        "problems": problems,
    }


@contextlib.contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(description="OpenClaw end to end.")
    parser.add_argument(
        "--without-extension", action="store_true", help="connect by the provider entry alone"
    )
    parser.add_argument(
        "--keep", type=Path, help="new folder for store, logs and OpenClaw's home (default: deleted)"
    )
    args = parser.parse_args()
    try:
        installation = ensure()
    except NotHere as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    with work_folder(args.keep) as folder:
        result = run(installation, folder, not args.without_extension)
    print(json.dumps(result), flush=True)
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
