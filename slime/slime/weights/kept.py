"""Chooses the versions to keep on disk: the newest, some older ones, the first, and the named ones."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from slime.weights import checkpoints
from slime.weights.versions import artifact_folder

FIRST = 0


def versions_to_keep(versions: Sequence[int], keep: int, named: Collection[int] = ()) -> list[int]:
    """Returns the versions to keep, ascending: about `keep`, plus the first and the named ones.

    The newest `keep` / 2 versions are all kept; gaps between older versions grow with age. Versions are removed one
    by one, each time the one that leaves the smallest gap for its age. Repeated thinning of a growing history
    therefore gives the same result.
    """
    kept = sorted(set(versions))
    fixed = {FIRST, *named, *kept[-max(1, (keep + 1) // 2) :]}
    while len([one for one in kept if one != FIRST and one not in named]) > keep:
        removable = [index for index in range(1, len(kept) - 1) if kept[index] not in fixed]
        if kept[0] not in fixed:
            removable.append(0)
        if not removable:
            break
        ages = {
            index: (kept[index + 1] - kept[max(0, index - 1)]) / (kept[-1] - kept[index])
            for index in removable
        }
        del kept[min(removable, key=lambda index: ages[index])]
    return kept


def versions_with_checkpoint(save: Path) -> dict[int, Path]:
    """Returns the folder of the newest checkpoint of each version."""
    folders = [save / f"checkpoint-{number}" for number in checkpoints.numbers(save)]
    complete = [folder for folder in folders if checkpoints.is_checkpoint(folder)]
    return {int(checkpoints.read_meta(folder)["version"]): folder for folder in complete}


def keep_versions(save: Path, weights: Path, keep: int, named: Collection[int], recent: int) -> list[int]:
    """Removes the checkpoints and artifacts of versions that are not kept.

    Args:
        recent: number of newest checkpoints that are kept in any case; the latest one always is.

    Returns:
        The versions to which a rollback is possible.
    """
    folder_of_version = versions_with_checkpoint(save)
    kept = set(versions_to_keep(list(folder_of_version), keep, named))
    protected = {save / f"checkpoint-{number}" for number in checkpoints.numbers(save)[-max(1, recent) :]}
    latest = checkpoints.latest(save)
    for version, folder in folder_of_version.items():
        if version not in kept and folder not in protected and folder != latest:
            shutil.rmtree(folder)
            shutil.rmtree(artifact_folder(weights, version), ignore_errors=True)
    stale = {save / f"checkpoint-{number}" for number in checkpoints.numbers(save)} - {
        *folder_of_version.values(),
        *protected,
    }
    for folder in stale:
        if folder != latest:
            shutil.rmtree(folder)
    return sorted(versions_with_checkpoint(save))
