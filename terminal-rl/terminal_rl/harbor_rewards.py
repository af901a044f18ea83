"""Reads the reward files of a Harbor task's own test.sh like Harbor's verifier."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

BOX_PATH = "/usr/bin:/bin"
_BEGIN = r"(?:^|[;&|(]|\b(?:then|do|else|sudo)\s)\s*"
_NETWORK = re.compile(
    _BEGIN
    + r"(apt(?:-get)?|apk|dnf|yum|uvx?|npx|(?:python3? -m )?pip3? install|npm install|git clone)(?=\s|$)"
)
_DOWNLOADS = re.compile(_BEGIN + r"(curl|wget)\s.*\bhttps?://(?!localhost|127\.)")
_PYTEST = re.compile(_BEGIN + r"(pytest|python3? -m pytest)(?=\s|$)")


class NoReward(ValueError):
    """No valid reward was written; the message gives the reason."""


def rewards_of(files: Mapping[str, str | None]) -> dict[str, float]:
    """Returns rewards by name, from the texts of reward.json and reward.txt; the first existing file counts, as in
    Harbor.

    Raises:
        NoReward: both are missing, or the file is empty or contains values that are not finite numbers.
    """
    for name, read in (("reward.json", _of_json), ("reward.txt", lambda text: {"reward": float(text)})):
        text = files.get(name)
        if text is None:
            continue
        if not text:
            raise NoReward(f"{name} is empty")
        try:
            rewards = read(text)
        except ValueError as error:
            raise NoReward(f"{name} cannot be read: {error}") from error
        if not all(math.isfinite(value) for value in rewards.values()):
            raise NoReward(f"{name} holds a reward that is not finite")
        return rewards
    raise NoReward("test.sh wrote neither reward.txt nor reward.json")


def _of_json(text: str) -> dict[str, float]:
    content = json.loads(text)
    if not isinstance(content, dict) or not content:
        raise ValueError("it must map names to numbers")
    if wrong := [name for name, value in content.items() if not isinstance(value, int | float)]:
        raise ValueError(f"{wrong[0]} is not a number")
    return {str(name): float(value) for name, value in content.items()}


def reward_of(rewards: Mapping[str, float]) -> float:
    """Returns the reward for training, 0 to 1: `reward`, or the mean if there is none of that name."""
    value = rewards.get("reward", sum(rewards.values()) / len(rewards))
    return min(1.0, max(0.0, value))


def needs_more_than_a_box(script: Path) -> str | None:
    """Returns the first line of a test.sh that needs the network or a missing program, and so cannot run in a
    sandbox."""
    for number, line in enumerate(script.read_text(errors="replace").splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        if match := _NETWORK.search(line) or _DOWNLOADS.search(line):
            return f"line {number}: {match[1]} needs the network, which sandboxes do not have"
        if (match := _PYTEST.search(line)) and shutil.which("pytest", path=BOX_PATH) is None:
            return f"line {number}: {match[1]} needs pytest, which sandboxes of this machine do not have"
    return None
