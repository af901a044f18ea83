"""Measures the peak memory of a process with Linux's counters."""

from pathlib import Path


class PeakMemory:
    """Measures how far the resident memory rises above its current value."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current value
        self.start = self._kilobytes("VmRSS")

    def rise_mb(self) -> float:
        return round((self._kilobytes("VmHWM") - self.start) / 1024, 1)

    def _kilobytes(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))
