"""What the wheels hold, and their versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import openclaw
import slime
from openclaw.server import main

ROOT = Path(__file__).parents[2]
METHODS = ("openclaw-rl", "openclaw-opd", "openclaw-combine")


def wheel() -> dict[str, Any]:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert isinstance(built, dict)
    return built


def test_the_wheel_holds_the_packages_of_all_methods() -> None:
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for folder in METHODS
        for path in (ROOT / folder).glob("*/__init__.py")
    }
    assert set(wheel()["packages"]) == {"openclaw", *packages}


def test_the_wheel_holds_the_modules_that_launch_scripts_name() -> None:
    modules = {
        path.relative_to(ROOT).as_posix(): path.name
        for folder in METHODS
        for path in (ROOT / folder).glob("*.py")
    }
    assert wheel()["force-include"] == modules


def test_versions_are_one_number_and_the_changelogs_newest() -> None:
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
