"""Uses podman or docker, whichever is installed, only to get the files of an image; no container is ever started."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.errors import ConfigError, DataError
from slime.sandbox.images.unpack import BadImage, Unpacker

TOOLS = ("podman", "docker")
SECONDS = 3600.0  # time limit of a pull or a build
RUNTIMES = ("crun", "runc", "OCI runtime")
"""Names in podman's error if starting a step failed, not the step itself."""
INSTALL = "install podman (Debian: apt-get install podman) or docker"


@dataclass(frozen=True)
class Tool:
    """One of these tools.

    Attributes:
        words: the command, and options before every subcommand.
    """

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return Path(self.words[0]).name

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a subcommand; one that takes longer than an hour fails."""
        try:
            return subprocess.run(
                [*self.words, *words],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 1, "", f"it took longer than {SECONDS:g} s")

    def about(self, image: str) -> dict[str, Any] | None:
        """Returns the tool's record of a local image; None if there is no image of that name."""
        completed = self.ask("image", "inspect", image)
        try:
            entries = json.loads(completed.stdout) if completed.returncode == 0 else []
        except ValueError:
            entries = []
        return entries[0] if entries else None

    def export(self, identity: str, to: Unpacker) -> None:
        """Unpacks the files of a local image. Raises BadImage, OSError."""
        created = self.ask("create", identity, "/bin/true")
        if created.returncode:
            raise BadImage(f"{self.name} create failed: {reason(created.stderr)}")
        container = created.stdout.strip().splitlines()[-1]
        try:
            with tempfile.TemporaryFile() as errors:
                command = [*self.words, "export", container]
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as export:
                    assert export.stdout is not None
                    try:
                        to.add(export.stdout)
                        while export.stdout.read(1 << 20):  # data after the end of a tar
                            pass
                    except BaseException:
                        export.kill()
                        raise
                if export.returncode:
                    errors.seek(0)
                    raise BadImage(
                        f"{self.name} export failed: {reason(errors.read().decode(errors='replace'))}"
                    )
        finally:
            self.ask("rm", "-f", container)

    def build(self, folder: Path, file: Path, name: str) -> None:
        """Builds an image from a Dockerfile. If podman's runtime cannot start containers, for example inside another one,
        the steps run in a chroot. Raises DataError with the last line of the tool's error."""
        words = ("-t", name, "-f", str(file), str(folder))
        completed = self.ask("build", *words)
        if (
            completed.returncode
            and self.name == "podman"
            and any(word in completed.stderr for word in RUNTIMES)
        ):
            completed = self.ask("build", "--isolation=chroot", *words)
        if completed.returncode:
            raise DataError(f"{file}: {self.name} cannot build it: {reason(completed.stderr)}")


def tools() -> list[Tool]:
    """Returns the installed tools."""
    paths = [shutil.which(name) for name in TOOLS]
    return [Tool((path,)) for path in paths if path is not None]


def tool_with(image: str, chosen: Sequence[Tool] | None = None) -> tuple[Tool, dict[str, Any]]:
    """Returns the tool that has the image, pulled if none has it, and its record.

    Raises:
        ConfigError: no tool is installed.
        DataError: no tool has or can pull the image; the message contains their errors.
    """
    if image.startswith("-"):
        # podman and docker would parse it as an option
        raise DataError(f"{image!r} is not a name of an image")
    here = tools() if chosen is None else list(chosen)
    if not here:
        raise ConfigError(f"the image {image} needs podman or docker, and neither is installed: {INSTALL}")
    for tool in here:
        if about := tool.about(image):
            return tool, about
    reasons = []
    for tool in here:
        completed = tool.ask("pull", image)
        if completed.returncode == 0 and (about := tool.about(image)):
            return tool, about
        reasons.append(f"{tool.name}: {reason(completed.stderr)}")
    raise DataError(f"the image {image} is not available: {'; '.join(reasons)}")


def reason(text: str) -> str:
    """Returns the last line of a tool's error message."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no reason given"
