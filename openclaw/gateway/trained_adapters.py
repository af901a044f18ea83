"""The adapters that a run trains, as served by the gateway, with the live version of each.

Before its first version, the base model answers for an adapter.
"""

from __future__ import annotations

from pathlib import Path

from claw_base.run_folder.forgetting import is_waiting
from openclaw.engine.adapters import Adapter
from openclaw.engine.live_adapter import LIVE, home_of, live_adapter
from openclaw.settings import Settings

Stamp = tuple[int, int]
"""Modification time and inode of a file, which change when it is replaced."""


class TrainedAdapters:
    """Caches an adapter's file until it is replaced."""

    def __init__(self, settings: Settings) -> None:
        self._run_dir = None if settings.run_dir is None else Path(settings.run_dir)
        self.adapters = {name: Adapter(name, "", trained=True) for name in sorted(settings.trained_adapters)}
        self._own = settings.own_adapters
        self._known: dict[str, tuple[Stamp, Adapter]] = {}

    def home(self, name: str) -> Path | None:
        """Returns the folder with the live version of an adapter and orders about its versions; None if unknown."""
        return None if self._run_dir is None else home_of(self._run_dir, name)

    def live(self, adapter: Adapter) -> Adapter:
        """Returns the live version of an adapter; other adapters, and those without a version or to be forgotten, are
        returned unchanged."""
        if not adapter.trained or self._run_dir is None:
            return adapter
        if adapter.name in self._own and is_waiting(self._run_dir, adapter.name):
            return self.adapters[adapter.name]
        try:
            status = (home_of(self._run_dir, adapter.name) / LIVE).stat()
        except OSError:
            return adapter
        stamp = status.st_mtime_ns, status.st_ino
        known = self._known.get(adapter.name)
        if known is None or known[0] != stamp:
            known = self._known[adapter.name] = stamp, live_adapter(self._run_dir, adapter.name)
        return known[1]
