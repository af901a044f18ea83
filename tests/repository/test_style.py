"""The linters are part of the tests, so that one command says whether the tree is good."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked(pattern: str) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listing.stdout.split()


def run(*command: str) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_finds_nothing() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_formatting_matches_ruff() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_types_are_strict_in_runtime_and_trainer() -> None:
    run(sys.executable, "-m", "tests.type_check")


def test_shell_scripts_pass_shellcheck() -> None:
    """shellcheck reads a sourced file again for each script. The two large ones are therefore followed from one script
    each. The others are checked without the variables that they share with it (SC2034, SC2154); dry runs start them
    with `set -u`."""
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    scripts = [*tracked("*.sh"), ".ci/run"]
    alone = []
    for large in ("gpu", "launch"):
        line = f'source "$ROOT/launch/{large}.sh"'
        _, *others = [name for name in scripts if line in (ROOT / name).read_text()]
        assert len(others) > 10
        alone += others
    run(shellcheck, "-x", "-P", "SCRIPTDIR", *(set(scripts) - set(alone)))
    run(shellcheck, "--exclude", "SC1091,SC2034,SC2154", *alone)


def test_every_top_level_folder_has_a_purpose_in_its_readme() -> None:
    folders = {Path(name).parts[0] for name in tracked("*") if len(Path(name).parts) > 1}
    missing = [f for f in sorted(folders) if not f.startswith(".") and not (ROOT / f / "README.md").is_file()]
    assert not missing


def test_every_folder_of_the_packages_has_a_readme_that_names_its_files() -> None:
    """The package itself names its folders; `__init__` and `__main__` need no word."""
    silent = []
    for name in tracked("openclaw/**/*.py") + tracked("slime/slime/**/*.py"):
        path = ROOT / name
        readme = path.with_name("README.md")
        if path.parent == ROOT / "slime" / "slime" or path.stem.startswith("__"):
            continue
        if not readme.is_file() or not re.search(rf"\b{path.stem}\b", readme.read_text()):
            silent.append(name)
    assert silent == []


def test_the_trainer_package_is_found_from_the_repository_root() -> None:
    code = "import slime; print(slime.__file__)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(shown.stdout.strip()) == ROOT / "slime" / "slime" / "__init__.py"
