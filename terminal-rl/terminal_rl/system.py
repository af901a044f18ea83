"""What all boxes of terminals have in common."""

from __future__ import annotations

from pathlib import Path

from slime.agents.sandbox import Limits

LIMITS = Limits(processes=64, cpu_seconds=600, file_bytes=64 << 20)
WORKSPACE_BYTES = 256 << 20
_ALTERNATIVES = Path("/etc/alternatives")
READ_ONLY = {_ALTERNATIVES: str(_ALTERNATIVES)} if _ALTERNATIVES.is_dir() else {}
"""Of this machine, beyond what every box has: awk and its like are links over this folder."""
