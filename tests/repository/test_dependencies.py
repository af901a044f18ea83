"""What the project stands on: exact versions, licences that allow it, no code that runs what it reads.

Known vulnerabilities change from day to day and need the network: see SECURITY.md for the command.
"""

from __future__ import annotations

import ast
import re
import subprocess
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "tests/requirements-qlora.txt")
LIBRARIES = ("numpy",)
"""Left to a range, so that torch and the rest agree on one."""
FREE = re.compile(
    r"apache|\bmit\b|bsd|isc|python|psf|mpl|mozilla|zlib|unlicense|public domain|cc0|0bsd|lgpl|lesser|hpnd|expat",
    re.IGNORECASE,
)
NOT_FREE = re.compile(r"(?<!l)gpl(?!.*exception)|affero|proprietary|sspl|commons clause", re.IGNORECASE)
PROPRIETARY = ("nvidia-", "cuda-", "triton")
"""CUDA's own libraries, which the GPU build of torch brings; the CPU build has none."""


def lines(name: str) -> list[str]:
    rows = [row.split("#")[0].strip() for row in (ROOT / name).read_text().splitlines()]
    return [row for row in rows if row]


def package(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return found[0]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_versions_are_exact(name: str) -> None:
    loose = [row for row in lines(name) if "==" not in row and package(row) not in LIBRARIES]
    assert loose == []


def licence(about: Distribution) -> str:
    """What a package says of its licence; the beginning of its licence file when it says nothing."""
    told = [about.metadata.get("License-Expression") or "", about.metadata.get("License") or ""]
    told += [one for one in about.metadata.get_all("Classifier") or [] if one.startswith("License")]
    files = [path for path in about.files or [] if re.match(r"licen[cs]e", path.name, re.IGNORECASE)]
    return " ".join(told).strip() or " ".join(path.read_text()[:200] for path in files)


def installed() -> dict[str, str]:
    """Licence by package, of all that the requirements bring."""
    found: dict[str, str] = {}
    waiting = [package(row) for row in lines("requirements.txt")]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name.startswith(PROPRIETARY):
            continue
        try:
            about = distribution(name)
        except PackageNotFoundError:  # for another platform, or an extra that is not asked for
            continue
        found[name] = licence(about)
        waiting += [package(row) for row in about.requires or [] if "extra ==" not in row]
    return found


def test_licences_of_all_dependencies_are_free_and_known() -> None:
    licences = installed()
    assert len(licences) > 40
    assert [name for name, text in licences.items() if not FREE.search(text)] == []
    assert [
        name for name, text in licences.items() if NOT_FREE.search(text[:200]) and "MIT" not in text
    ] == []


def test_nothing_runs_what_it_reads() -> None:
    """No shell, no eval, no code of a model folder, no pickle."""
    sources = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found = []
    for name in sources:
        if name.startswith("tests/"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                unsafe = (
                    called in ("eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads")
                    or options.get("shell") == "True"
                    or options.get("trust_remote_code") == "True"
                    or options.get("weights_only") == "False"
                )
                if unsafe:
                    found.append(f"{name}: {called}")
    assert found == []
