"""The name that launch scripts know the hybrid's rollout function by: it is combine's."""

from __future__ import annotations

from openclaw_combine_rollout import (
    generate_rollout_openclaw_combine as generate_rollout_openclaw_combine_select,
)
from openclaw_combine_rollout import on_weights_live

__all__ = ["generate_rollout_openclaw_combine_select", "on_weights_live"]
