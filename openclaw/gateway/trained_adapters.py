"""The adapters that this run trains, with the live version of each. Until an adapter has a version, the base model
answers in its place."""

from __future__ import annotations

from pathlib import Path

from claw_base.run_folder.forgetting import is_waiting
from openclaw.engine.adapters import Adapter
from openclaw.engine.live_adapter import LIVE, home_of, live_adapter
from openclaw.settings import Settings

Stamp = tuple[int, int]
"""Modification time (ns) and inode of a file. They change when the file is replaced."""


class TrainedAdapters:
    """Reads the live versions from the run folder, and caches each until its file is replaced."""

    def __init__(self, settings: Settings) -> None:
        self._run_dir = None if settings.run_dir is None else Path(settings.run_dir)
        self.adapters = {name: Adapter(name, "", trained=True) for name in sorted(settings.trained_adapters)}
        self._own = settings.own_adapters
        self._known: dict[str, tuple[Stamp, Adapter]] = {}

    def home(self, name: str) -> Path | None:
        """Returns the folder with the live version of an adapter and the orders about its versions; None without a run
        folder."""
        return None if self._run_dir is None else home_of(self._run_dir, name)

    def live(self, adapter: Adapter) -> Adapter:
        """Returns the live version of an adapter.

        An adapter that this run does not train, or that has no version yet, is returned unchanged. An adapter that is
        about to be deleted with its person is returned without weights.
        """
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
