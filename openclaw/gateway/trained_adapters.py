"""The adapters that a run trains, as the gateway serves them: which there are, and the version of each that is live.

Until an adapter has its first version, the base answers for it: an adapter begins as one that changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from claw_base.run_folder.forgetting import is_waiting
from openclaw.engine.adapters import Adapter
from openclaw.engine.live_adapter import LIVE, home_of, live_adapter
from openclaw.settings import Settings

Stamp = tuple[int, int]
"""Time and number of a file: another one has another."""


class TrainedAdapters:
    """Reads the file of an adapter again only after it was replaced."""

    def __init__(self, settings: Settings) -> None:
        self._run_dir = None if settings.run_dir is None else Path(settings.run_dir)
        self.adapters = {name: Adapter(name, "", trained=True) for name in sorted(settings.trained_adapters)}
        self._own = settings.own_adapters
        self._known: dict[str, tuple[Stamp, Adapter]] = {}

    def home(self, name: str) -> Path | None:
        """Folder that names the live version of an adapter and takes orders about its versions; None: not known."""
        return None if self._run_dir is None else home_of(self._run_dir, name)

    def live(self, adapter: Adapter) -> Adapter:
        """The live version of an adapter; another adapter, one without a version, or one that is to be forgotten, is
        returned as it is."""
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
