"""Runs the real OpenClaw with the real gateway, with or without the plug-in.

    bash lab/run.sh e2e.run
        prints one JSON line; exit status 1 when something is wrong
    bash lab/run.sh e2e.run --without-extension

Installs Node and OpenClaw from npm first (see install.py). Two OpenClaws with separate homes talk to one server. The
engine is scripted (see scripted_engine.py), because the tiny model cannot call OpenClaw's tools; its version changes
every second while answers stream.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from claw_lab.e2e import checks
from claw_lab.e2e.client import OpenClaw
from claw_lab.e2e.install import Installation, NotHere, ensure
from claw_lab.e2e.scenario import AFTER_COMPACTION, AFTER_RESET, CRON_TEXT, LOCAL, SCRIPT, Conversation, Say
from claw_lab.e2e.serving import Serving

HOUSEKEEPING_SECONDS = 60.0


class Talk:
    """Plays the script and records the turns that the server must have stored."""

    def __init__(self, openclaw: OpenClaw, second: OpenClaw, serving: Serving, extension: bool) -> None:
        self.openclaw, self.second, self.serving, self.extension = openclaw, second, serving, extension
        self.conversations: dict[str, Conversation] = {}
        self.seconds: list[float] = []

    def all(self) -> None:
        """Plays the whole scenario."""
        (self.openclaw.state / "workspace" / "notes.txt").write_text("these are the notes.txt\n")
        with self.openclaw:
            self._through_gateway(SCRIPT)
            for name, conversation in self.conversations.items():
                conversation.session_id = self._session_of(name)
            self.openclaw.call("sessions.compact", key="agent:main:openai-user:alice")
            self._through_gateway(AFTER_COMPACTION)
            self._reset("bob")
            self._through_gateway(AFTER_RESET)
            self._housekeeping()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._locally, (self.openclaw, self.second), ("dave", "erin")))

    def _through_gateway(self, script: tuple[Say, ...]) -> None:
        for person, text in script:
            began = time.monotonic()
            reply = self.openclaw.say(person, text)
            self.seconds.append(time.monotonic() - began)
            self.conversations.setdefault(person, Conversation(person)).add_exchange(text, reply)

    def _locally(self, openclaw: OpenClaw, name: str) -> None:
        conversation = self.conversations.setdefault(name, Conversation(name, session_id=name))
        for text in LOCAL:
            conversation.add_exchange(text, openclaw.say_local(name, text))

    def _session_of(self, person: str) -> str:
        """Returns OpenClaw's session id of a conversation."""
        for session in self.openclaw.call("sessions.list").get("sessions", []):
            if session["key"].endswith(f":{person}"):
                return str(session["sessionId"])
        return ""

    def _reset(self, person: str) -> None:
        """Ends the conversation so far; the plug-in reports its end to the server."""
        before = self.conversations.pop(person)
        self.openclaw.call("sessions.reset", key=f"agent:main:openai-user:{person}")
        before.ends = self.extension
        self.conversations[f"{person}, before the reset"] = before
        self.conversations[person] = Conversation(person, session_id=before.session_id)

    def _housekeeping(self) -> None:
        """Triggers a scheduled job and a heartbeat, without a person's request; returns when the server has recorded
        both."""
        job = {"name": "garden", "sessionTarget": "isolated", "wakeMode": "now", "delivery": {"mode": "none"},
               "schedule": {"kind": "every", "everyMs": 86_400_000},
               "payload": {"kind": "agentTurn", "message": CRON_TEXT}}  # fmt: skip
        made = self.openclaw.call("cron.add", **job)
        self.openclaw.call("cron.run", id=made.get("id", made.get("job", {}).get("id", "")), mode="force")
        self.openclaw.call("wake", text="wake up", mode="now")
        deadline = time.monotonic() + HOUSEKEEPING_SECONDS
        while time.monotonic() < deadline:
            if not checks.side_problems(checks.side_counts(self.serving.turns())):
                return
            time.sleep(0.5)


def connect(openclaw: OpenClaw, url: str, extension: bool) -> None:
    """Runs `python -m openclaw.connect`, as a user does. Raises CalledProcessError."""
    words = [sys.executable, "-m", "openclaw.connect", "--url", f"{url}/v1"]
    words += [] if extension else ["--no-extension"]
    env = {**openclaw.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'base'}"}
    subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=120)


def run(installation: Installation, folder: Path, extension: bool) -> dict[str, Any]:
    """Runs the check once; returns the content of the JSON line."""
    began = time.monotonic()
    with Serving(folder) as serving:
        openclaw = OpenClaw(installation, folder / "home")
        second = OpenClaw(installation, folder / "second-home")
        for one in (openclaw, second):
            connect(one, serving.url, extension)
        talk = Talk(openclaw, second, serving, extension)
        talk.all()
        turns, calls, passages = serving.turns(), serving.engine_calls(), serving.passages()
        versions = serving.versions
    side = checks.side_counts(turns)
    errors = openclaw.errors + second.errors + checks.refused(passages)
    problems = [
        *errors,
        *checks.conversation_problems(list(talk.conversations.values()), turns),
        *checks.side_problems(side),
        *checks.storage_problems(turns, calls),
    ]
    return {
        "extension": extension,
        "openclaw": installation.version,
        "said": len(SCRIPT) + len(AFTER_COMPACTION) + len(AFTER_RESET) + 2 * len(LOCAL),
        "main_turns": sum(turn.turn_type == "main" for turn in turns),
        "side_turns": side,
        "answered": checks.answered(turns),
        "weight_versions": versions,
        "client_errors": len(errors),
        **checks.timing(checks.gateway_seconds(passages, calls)),
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
    parser.add_argument("--without-extension", action="store_true", help="connect only by the provider entry")
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
