"""Weight versions: numbers that are never used twice, their artifacts, and the one that is live."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from claw_base.files import write_json, write_text
from slime.errors import ConfigError

OWNER = "save.txt"
"""Names, in a folder of versions, the --save of the run whose they are."""

CHECKSUM_PREFIX = "xxh3:"
"""Prefix of checksums computed from digests of tensors. Releases up to 0.2.0 hashed all bytes in a row, without a
prefix."""


def is_of_before(checksum: str) -> bool:
    """Returns whether a release up to 0.2.0 computed it."""
    return not checksum.startswith(CHECKSUM_PREFIX)


@dataclass(frozen=True)
class WeightVersion:
    """One version of the weights as an artifact: a Hugging Face folder and the checksum of its tensors.

    `rollout_id`: the last rollout that it was trained on (-1: none), None if that is not known.
    """

    version: int
    path: str
    checksum: str
    rollout_id: int | None = field(default=None, compare=False)


class VersionNumbers:
    """The durable counter `{save}/version_counter.json`. A number comes once and never again."""

    def __init__(self, save_dir: Path) -> None:
        self.path = save_dir / "version_counter.json"

    def last(self) -> int:
        """The highest number handed out; 0, the model as loaded, belongs to everybody."""
        if not self.path.exists():
            return 0
        return int(json.loads(self.path.read_text())["last"])

    def next(self, *seen: int) -> int:
        """The next number, above the counter and above every version that was `seen` elsewhere."""
        number = max(self.last(), *seen, 0) + 1
        write_json(self.path, {"last": number})
        return number


def artifact_folder(folder: Path, version: int) -> Path:
    """Returns the folder of a version in the folder of a run's versions (`--update-weight-disk-dir`)."""
    return folder / f"v{version:06d}"


def is_adapter(folder: Path) -> bool:
    """Returns whether a version's folder holds an adapter alone."""
    return (folder / "adapter_config.json").is_file()


def claim_folder(folder: Path, save_dir: Path) -> None:
    """Creates the folder of a run's versions. Raises ConfigError if those of another run, of the same numbers,
    lie."""
    if folder.is_relative_to(save_dir):
        return  # it moves with it
    sign = folder / OWNER
    owner = sign.read_text() if sign.exists() else str(save_dir)
    if owner != str(save_dir):
        raise ConfigError(
            f"--update-weight-disk-dir {folder} holds the versions of {owner}: give each run a folder of its own"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(sign, str(save_dir))


def live_file(run_dir: Path) -> Path:
    """Returns the file that names the weights for starting engines (`--weights-file`)."""
    return run_dir / "live_weights.json"


def read_live(run_dir: Path) -> WeightVersion | None:
    """The version that is live, or None before the first one."""
    path = live_file(run_dir)
    if not path.exists():
        return None
    live = WeightVersion(**json.loads(path.read_text()))
    return replace(live, path=str(run_dir / live.path))


def forget_lost(run_dir: Path) -> WeightVersion | None:
    """Names no live version where the folder of the one that was live is gone, so that engines start with the model
    as it was given until the trainer's weights go live again; returns the lost version."""
    live = read_live(run_dir)
    if live is None or Path(live.path).is_dir():
        return None
    write_live(run_dir, None)
    return live


def write_live(run_dir: Path, live: WeightVersion | None) -> None:
    """Names the version that is live (None: none). A path inside the run folder is written relative to it, so that
    the folder can be moved."""
    if live is None:
        live_file(run_dir).unlink(missing_ok=True)
        return
    path = Path(live.path)
    inside = path.is_relative_to(run_dir)
    written = replace(live, path=str(path.relative_to(run_dir))) if inside else live
    write_json(live_file(run_dir), asdict(written))


def prune(folder: Path, pattern: str, keep: int, spare: set[Path]) -> list[Path]:
    """Removes all but the `keep` newest (by name) folders that match, except those in `spare`.

    Returns the removed ones. `keep` 0 or less keeps everything.
    """
    if keep <= 0:
        return []
    spared = {path.resolve() for path in spare}
    old = sorted(folder.glob(pattern))[:-keep]
    gone = [path for path in old if path.resolve() not in spared]
    for path in gone:
        shutil.rmtree(path)
    return gone
