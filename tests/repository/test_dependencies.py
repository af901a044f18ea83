"""Dependencies: exact versions, compatible licences, and no code that executes data that it reads.

Known vulnerabilities change daily and need the network: see SECURITY.md for the command.
"""

from __future__ import annotations

import ast
import re
import subprocess
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_TESTS = ("requirements-dev.txt", "tests/requirements-compiler.txt", "tests/requirements-qlora.txt")
REQUIREMENTS = ("requirements.txt", *OF_TESTS)
LIBRARIES = ("numpy",)
"""Given as ranges, so that torch and the others agree on a version."""
FREE = re.compile(
    r"\b(apache|mit|0?bsd|isc|psf|python software foundation|cnri-python|mpl|mozilla public license|zlib|unlicense"
    r"|public domain|cc0|lgpl|lesser general public|hpnd|expat|bsl-1\.0)\b",
    re.IGNORECASE,
)
NOT_FREE = re.compile(
    r"\b(a?gpl(v?[0-9.]+)?(?!.*\bexception\b)|affero|sspl|busl|business source|commons clause|proprietary"
    r"|non-?commercial)\b",
    re.IGNORECASE,
)
PROPRIETARY = ("nvidia-", "cuda-", "triton")
"""CUDA's libraries, which the GPU build of torch installs; the CPU build has none."""


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
    """Returns a package's licence: an expression, or first lines, of its licence file if the metadata has none."""
    if expression := about.metadata.get("License-Expression"):
        return expression
    told = [(about.metadata.get("License") or "").strip().partition("\n")[0]]
    told += [one for one in about.metadata.get_all("Classifier") or [] if one.startswith("License")]
    files = [path for path in about.files or [] if re.match(r"licen[cs]e", path.name, re.IGNORECASE)]
    return " ".join(told).strip() or " ".join(path.read_text().strip().partition("\n")[0] for path in files)


def installed() -> dict[str, str]:
    """Returns the licence of each package that the requirements install."""
    found: dict[str, str] = {}
    waiting = [package(row) for row in lines("requirements.txt")]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name.startswith(PROPRIETARY):
            continue
        try:
            about = distribution(name)
        except PackageNotFoundError:  # for another platform, or an extra that is not requested
            continue
        found[name] = licence(about)
        waiting += [package(row) for row in about.requires or [] if "extra ==" not in row]
    return found


def is_free(text: str) -> bool:
    """Returns whether every licence joined by AND is allowed; of those joined by OR, one suffices."""
    return all(
        any(FREE.search(choice) and not NOT_FREE.search(choice) for choice in re.split(r"\bOR\b", part))
        for part in re.split(r"\bAND\b", text)
    )


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("BSD-3-Clause", True),
        ("License :: OSI Approved :: MIT License", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-2.0-only OR MIT", True),
        ("LGPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-or-later", False),
        ("GPLv3", False),
        ("AGPL-3.0-only", False),
        ("BUSL-1.1", False),
        ("Misc. terms; submit a form for permission; discretion of the author", False),
        ("for use in Python programs only", False),
        ("", False),
    ],
)
def test_a_licence_is_recognised_by_whole_words(text: str, free: bool) -> None:
    assert is_free(text) is free


def test_licences_of_all_dependencies_are_free_and_known() -> None:
    licences = installed()
    assert len(licences) > 40
    assert {name: text for name, text in licences.items() if not is_free(text)} == {}


IN_A_BOX = {
    "slime/slime/sandbox/python_worker.py",
    "swe-rl/swe_rl/boxed_pytest.py",
    "terminal-rl/terminal_rl/boxed_tests.py",
}
"""These run inside the sandbox, and are meant to run what they read."""
OF_SGLANG = {"lab/claw_lab/long/gpu_check/ipc.py", "lab/claw_lab/long/sglang_pictures.py"}
"""Checks of the installed SGLang: one unpickles its own data as SGLang does, the other calls one of SGLang's
functions without loading the rest."""


UNSAFE_CALLS = (
    *("eval", "exec", "os.system", "os.popen"),
    *(
        f"{module}.{name}"
        for module in ("pickle", "cloudpickle", "dill", "marshal")
        for name in ("load", "loads")
    ),
    *("pickle.Unpickler", "shelve.open", "joblib.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load"),
    *("torch.jit.load", "torch.hub.load", "torch.storage._load_from_bytes"),
)
UNSAFE_OPTIONS = {
    "shell": "True",
    "trust_remote_code": "True",
    "weights_only": "False",
    "allow_pickle": "True",
}
NEEDED_OPTIONS = {
    r"torch\.load": ("weights_only", "True"),
    r"(transformers\.)?Auto\w+\.from_pretrained": ("trust_remote_code", "False"),
}
"""Required options of calls, by name. Without this option, transformers asks at the terminal whether to run a model
folder's code."""

MARKS = (
    *(f"{name}(" for name in (*UNSAFE_CALLS, "torch.load", "from_pretrained")),
    *(f"{option}=" for option in UNSAFE_OPTIONS),
)
"""Text marks in formatted files; files without any are not parsed."""


def test_no_code_executes_data_that_it_reads() -> None:
    """No shell, no eval, no code of a model folder, no pickle."""
    sources = subprocess.run(
        ["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = []
    for name in filter(None, sources):
        if name.startswith("tests/") or name in IN_A_BOX | OF_SGLANG:
            continue
        source = (ROOT / name).read_text()
        if not any(mark in source for mark in MARKS):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if called in UNSAFE_CALLS or any(
                    options.get(option) == value for option, value in UNSAFE_OPTIONS.items()
                ):
                    found.append(f"{name}: {called}")
                for pattern, (option, value) in NEEDED_OPTIONS.items():
                    if re.fullmatch(pattern, called) and options.get(option) != value:
                        found.append(f"{name}: {called} without {option}={value}")
    assert found == []
