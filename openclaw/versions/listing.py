"""Versions for display: status, lineage, measurements, whether they are on disk, and their quarantined samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from claw_base.run_folder.orders import pinned
from openclaw.store import RolloutStore
from openclaw.types import DEFAULT_TRAINER, WeightVersion, policy_of

BRIEF = ("reason", "stage", "measurements", "undone")
"""Parts of the details in a list; `metrics` of the training step are shown only for a single version."""


def list_versions(store: RolloutStore, run_dir: Path | None, adapter: str | None = None) -> dict[str, Any]:
    """Returns `{"live", "pinned", "data": [{"version", "parent", "status", ...}]}`, oldest first, of the model or an
    adapter."""
    pinned_version = pinned(run_dir) if run_dir else None
    trainer = policy_of(DEFAULT_TRAINER, adapter)
    quarantined = store.quarantine.counts(trainer)
    data = [_as_json(version, pinned_version, quarantined) for version in store.versions.all(trainer)]
    live = store.versions.live(None if adapter is None else trainer)
    return {"live": live, "pinned": pinned_version, "data": data}


def show_version(
    store: RolloutStore, run_dir: Path | None, number: int, adapter: str | None = None
) -> dict[str, Any] | None:
    """Returns one version of the model or an adapter, with the metrics of its training step; None if it does not
    exist."""
    pinned_version = pinned(run_dir) if run_dir else None
    trainer = policy_of(DEFAULT_TRAINER, adapter)
    for version in store.versions.all(trainer):
        if version.version == number:
            shown = _as_json(version, pinned_version, store.quarantine.counts(trainer))
            return {**shown, "metrics": version.details.get("metrics", {})}
    return None


def _as_json(
    version: WeightVersion, pinned_version: int | None, quarantined: dict[int, int]
) -> dict[str, Any]:
    details = {name: version.details[name] for name in BRIEF if name in version.details}
    return {
        "version": version.version,
        "parent": version.parent,
        "status": str(version.status),
        "rollout_id": version.rollout_id,
        "created_at": version.created_at,
        "activated_at": version.activated_at,
        "checksum": version.checksum,
        "on_disk": version.path is not None and Path(version.path).is_dir(),
        "pinned": version.version == pinned_version,
        "quarantined": quarantined.get(version.version, 0),
        **details,
    }
