"""Build hook: a wheel of slime carries the package `claw_base`, which is next to this folder."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WithBase(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the folder to a standard wheel; an editable one finds it by `dev-mode-dirs`."""
        if version == "standard":
            build_data["force_include"]["../base/claw_base"] = "claw_base"
