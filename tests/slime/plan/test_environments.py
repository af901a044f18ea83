"""Tests that a plan includes the environments' needs if the generate function's module states them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.errors import ConfigError
from slime.plan.environments import EnvironmentUse, environments_of


def said(tmp_path: Path, body: str) -> Any:
    (tmp_path / "mine.py").write_text(f"from slime.plan.environments import EnvironmentUse\n{body}\n")
    return SimpleNamespace(custom_generate_function_path=f"{tmp_path}/mine.py:generate")


def test_resources_of_environments_are_summed(tmp_path: Path) -> None:
    args = said(
        tmp_path, "def environment_use(args):\n  return EnvironmentUse(64, 512 << 20, 1 << 30, cores=0.5)"
    )
    found = environments_of(args)
    assert found == EnvironmentUse(64, 512 << 20, 1 << 30, 0.5)
    assert found.line().endswith("32 GiB of memory, 64 GiB of disk, 32 cores")
    assert "96 GiB of memory, 0 GiB of disk" in EnvironmentUse(64, 512 << 20, 1 << 30, in_memory=True).line()


def test_a_module_without_declaration_is_not_planned_and_an_invalid_one_is_rejected(tmp_path: Path) -> None:
    assert environments_of(SimpleNamespace(custom_generate_function_path=None)) is None  # type: ignore[arg-type]
    assert environments_of(said(tmp_path, "")) is None
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="must return an EnvironmentUse, got 7"):
        environments_of(said(tmp_path / "other", "def environment_use(args):\n  return 7"))
