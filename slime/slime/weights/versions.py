"""Weight versions: numbers that are never reused, their artifacts, and the live version."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from claw_base.files import write_json, write_text
from slime.errors import ConfigError

OWNER = "save.txt"
"""File in a folder of versions that names the --save folder of their run."""

CHECKSUM_PREFIX = "xxh3:"
"""Prefix of checksums computed from digests of tensors. Releases up to 0.2.0 hashed all bytes in sequence, without a
prefix."""


def is_legacy_checksum(checksum: str) -> bool:
    """Returns whether a checksum is from a release up to 0.2.0."""
    return not checksum.startswith(CHECKSUM_PREFIX)


@dataclass(frozen=True)
class WeightVersion:
    """One version of the weights as an artifact: a Hugging Face folder and the checksum of its tensors.

    `rollout_id`: the last rollout that it was trained on (-1: none), or None if unknown.
    """

    version: int
    path: str
    checksum: str
    rollout_id: int | None = field(default=None, compare=False)


class VersionNumbers:
    """The durable counter `{save}/version_counter.json`. Each number is used only once."""

    def __init__(self, save_dir: Path) -> None:
        self.path = save_dir / "version_counter.json"

    def last(self) -> int:
        """Returns the highest used number; 0 stands for the original model."""
        if not self.path.exists():
            return 0
        return int(json.loads(self.path.read_text())["last"])

    def next(self, *seen: int) -> int:
        """Returns the next number, above the counter and above every version `seen` elsewhere."""
        number = max(self.last(), *seen, 0) + 1
        write_json(self.path, {"last": number})
        return number


def artifact_folder(folder: Path, version: int) -> Path:
    """Returns the folder of a version in the folder of a run's versions (`--update-weight-disk-dir`)."""
    return folder / f"v{version:06d}"


def is_adapter(folder: Path) -> bool:
    """Returns whether a version's folder contains only an adapter."""
    return (folder / "adapter_config.json").is_file()


def claim_folder(folder: Path, save_dir: Path) -> None:
    """Creates the folder of a run's versions. Raises ConfigError if it contains another run's versions, whose numbers
    would be the same."""
    if folder.is_relative_to(save_dir):
        return  # the folder moves with --save
    owner_file = folder / OWNER
    owner = owner_file.read_text() if owner_file.exists() else str(save_dir)
    if owner != str(save_dir):
        raise ConfigError(
            f"--update-weight-disk-dir {folder} contains the versions of {owner}: choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(owner_file, str(save_dir))


def live_file(run_dir: Path) -> Path:
    """Returns the file that names the weights for starting engines (`--weights-file`)."""
    return run_dir / "live_weights.json"


def read_live(run_dir: Path) -> WeightVersion | None:
    """Returns the live version, or None before the first one."""
    path = live_file(run_dir)
    if not path.exists():
        return None
    live = WeightVersion(**json.loads(path.read_text()))
    return replace(live, path=str(run_dir / live.path))


def clear_missing_live(run_dir: Path) -> WeightVersion | None:
    """Clears the live version if its folder is missing, and returns it. Engines then start with the original model
    until the trainer's weights go live again."""
    live = read_live(run_dir)
    if live is None or Path(live.path).is_dir():
        return None
    write_live(run_dir, None)
    return live


def write_live(run_dir: Path, live: WeightVersion | None) -> None:
    """Records the live version (None: none). A path inside the run folder is stored relative to it, so that the
    folder can be moved."""
    if live is None:
        live_file(run_dir).unlink(missing_ok=True)
        return
    path = Path(live.path)
    inside = path.is_relative_to(run_dir)
    written = replace(live, path=str(path.relative_to(run_dir))) if inside else live
    write_json(live_file(run_dir), asdict(written))


def prune(folder: Path, pattern: str, keep: int, spare: set[Path]) -> list[Path]:
    """Removes all but the `keep` newest (by name) matching folders, except those in `spare`.

    Returns the removed ones. `keep` 0 or less removes nothing.
    """
    if keep <= 0:
        return []
    protected = {path.resolve() for path in spare}
    old = sorted(folder.glob(pattern))[:-keep]
    removed = [path for path in old if path.resolve() not in protected]
    for path in removed:
        shutil.rmtree(path)
    return removed
