"""Checks with Node's openai client, in openai_node.mjs; npm installs the client into a cache folder once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from openclaw_test.conformance.target import (
    FUNCTION,
    MAX_TOKENS,
    NO_MODEL,
    QUESTION,
    TOOL,
    WRONG_KEY,
    Check,
    NotInstalledError,
    Target,
    expect,
)

PACKAGE = "openai@7.57.0"
SCRIPT = Path(__file__).with_name("openai_node.mjs")
INSTALL_SECONDS = 120


def checks(target: Target) -> Mapping[str, Check]:
    """Returns the checks; all run in one Node process, whose results are looked up."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalledError("install Node.js (node and npm)")
    folder = _folder()
    if not (folder / "node_modules" / "openai").is_dir():
        _install(npm, folder)
    settings = {
        "url": target.base,
        "key": target.sent_key,
        "model": target.model,
        "question": QUESTION,
        "maxTokens": MAX_TOKENS,
        "tool": TOOL,
        "function": FUNCTION["name"],
        "wrongKey": WRONG_KEY,
        "noModel": NO_MODEL,
    }
    script = folder / SCRIPT.name
    shutil.copyfile(SCRIPT, script)
    done = subprocess.run(
        [node, str(script), json.dumps(settings)], capture_output=True, text=True, timeout=300
    )
    errors = {line["check"]: line["error"] for line in map(json.loads, done.stdout.splitlines())}

    def check_of(name: str) -> Check:
        return lambda: expect(errors.get(name) == "", errors.get(name, f"not run: {done.stderr[-300:]}"))

    names = ("answer", "stream", "tool", "streamed-tool", "wrong-field", "other-model", "wrong-key")
    return {name: check_of(name) for name in names}


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "openclaw-conformance" / PACKAGE.replace("@", "-")


def _install(npm: str, folder: Path) -> None:
    """Installs the client. Raises NotInstalledError, for instance without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", PACKAGE]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"npm install {PACKAGE} failed: {error}") from error
