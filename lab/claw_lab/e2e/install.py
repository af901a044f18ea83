"""Installs Node and OpenClaw from npm, once, in a separate cache folder.

bash lab/run.sh e2e.install        prints the PATH to use; about 700 MB, a minute
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OPENCLAW = "2026.9.6"
NODE = "24.21.0"
SECONDS = 600
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-rl" / "e2e"


class NotHere(RuntimeError):
    """OpenClaw cannot be installed on this machine; the message gives the reason."""


@dataclass(frozen=True)
class Installation:
    """An installation; `path` is prepended to PATH."""

    path: str
    version: str = OPENCLAW

    def env(self, home: Path) -> dict[str, str]:
        """Returns the environment of an OpenClaw whose home is `home`, without the user's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENCLAW")}
        return {
            **kept,
            "PATH": f"{self.path}:{os.environ['PATH']}",
            "HOME": str(home),
            "OPENCLAW_STATE_DIR": str(home / ".openclaw"),
            "NO_COLOR": "1",
        }


def ensure() -> Installation:
    """Installs missing packages; returns the installation. Raises NotHere."""
    node, packages = CACHE / f"node-{NODE}", CACHE / f"openclaw-{OPENCLAW}"
    paths = [node / "node_modules" / "node" / "bin", packages / "node_modules" / ".bin"]
    installation = Installation(":".join(map(str, paths)))
    if not (paths[0] / "node").exists():
        _npm(["install", f"node@{NODE}"], node, os.environ["PATH"])
    if not (paths[1] / "openclaw").exists():
        _npm(["install", f"openclaw@{OPENCLAW}"], packages, f"{paths[0]}:{os.environ['PATH']}")
    return installation


def _npm(words: list[str], folder: Path, path: str) -> None:
    """Installs into a folder that only appears when it is complete."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotHere("npm is not here; install Node")
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    unfinished.mkdir(parents=True, exist_ok=True)
    command = [npm, *words, "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(unfinished)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise NotHere(f"npm {' '.join(words)} took longer than {SECONDS} s") from error
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise NotHere(f"npm {' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)


if __name__ == "__main__":
    try:
        print(ensure().path)
    except NotHere as reason:
        print(f"error: {reason}", file=sys.stderr)
        sys.exit(1)
