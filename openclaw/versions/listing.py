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
    held = pinned(run_dir) if run_dir else None
    trainer = policy_of(DEFAULT_TRAINER, adapter)
    quarantined = store.quarantine.counts(trainer)
    data = [_shown(version, held, quarantined) for version in store.versions.all(trainer)]
    live = store.versions.live(None if adapter is None else trainer)
    return {"live": live, "pinned": held, "data": data}


def show_version(
    store: RolloutStore, run_dir: Path | None, number: int, adapter: str | None = None
) -> dict[str, Any] | None:
    """Returns one version of the model or an adapter, with the metrics of its training step; None if it does not
    exist."""
    held = pinned(run_dir) if run_dir else None
    trainer = policy_of(DEFAULT_TRAINER, adapter)
    for version in store.versions.all(trainer):
        if version.version == number:
            shown = _shown(version, held, store.quarantine.counts(trainer))
            return {**shown, "metrics": version.details.get("metrics", {})}
    return None


def _shown(version: WeightVersion, held: int | None, quarantined: dict[int, int]) -> dict[str, Any]:
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
        "pinned": version.version == held,
        "quarantined": quarantined.get(version.version, 0),
        **details,
    }
