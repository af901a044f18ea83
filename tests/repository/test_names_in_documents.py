"""Files, modules and programs that documents name exist, and the programs start as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
METHODS = (
    "openclaw-rl",
    "openclaw-opd",
    "openclaw-combine",
    "openclaw-tinker",
    "openclaw-fireworks",
    "terminal-rl",
    "toolcall-rl",
    "swe-rl",
    "gui-rl",
)
PACKAGE_FOLDERS = ("", "slime", *METHODS, "openclaw-test", "lab")
PACKAGES = "|".join(
    (
        "openclaw",
        "slime",
        *(name.replace("-", "_") for name in METHODS),
        "openclaw_test",
        "tiny_claw",
        "claw_lab",
    )
)
FOLDERS = "|".join(("openclaw", *METHODS, "openclaw-test", "slime", "lab", "launch", "instructions", "tests"))
OLD_NAMES = "CHANGELOG.md"
UNTRIED = ("test_sglang.py",)
"""Programs without --help."""
DOCUMENTS = [
    name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()
    if name != OLD_NAMES
]  # fmt: skip
READMES = [name for name in DOCUMENTS if re.fullmatch(r"(slime/slime|openclaw)/.*README\.md", name)]


def has_file(name: str, document: Path) -> bool:
    """Returns whether a path exists, relative to the root, slime/, tests/, or the document; `*` matches any text."""
    name = name.rstrip("/.,").split("::")[0]
    return any(
        next(base.glob(name), None) for base in (ROOT, ROOT / "slime", ROOT / "tests", document.parent)
    )


def has_name(dotted: str) -> bool:
    """Returns whether a dotted name is a module of ours, or a word in the module that it starts with."""
    for folder in (ROOT / name for name in PACKAGE_FOLDERS):
        at, parts = folder, dotted.split(".")
        while parts and (at / parts[0] / "__init__.py").is_file():
            at, parts = at / parts[0], parts[1:]
        if at == folder:
            continue
        source, words = at / "__init__.py", parts
        if parts and (at / f"{parts[0]}.py").is_file():
            source, words = at / f"{parts[0]}.py", parts[1:]
        return not words or re.search(rf"\b{re.escape(words[0])}\b", source.read_text()) is not None
    return False


def missing_names(document: Path) -> list[str]:
    """Returns paths and dotted names in the code of a document that do not exist."""
    text = document.read_text()
    commands = re.findall(r"^.*?\b(?:bash|python3?) .*", text, re.MULTILINE)
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *commands])
    paths = re.findall(rf"(?<![\w/.:-])(?:{FOLDERS})/[\w./*:-]+", code)
    modules = re.findall(rf"(?<![\w./:-])(?:{PACKAGES})(?:\.[a-zA-Z_]\w*)+(?![\w/*])", code)
    modules = [name for name in modules if not name.endswith((".db", ".json"))]
    return [path for path in paths if not has_file(path, document)] + [
        name for name in modules if not has_name(name)
    ]


def test_files_and_modules_that_documents_name_exist() -> None:
    missing = {name: missing_names(ROOT / name) for name in DOCUMENTS}
    assert not {name: found for name, found in missing.items() if found}


def test_every_folder_of_runtime_and_trainer_has_a_readme() -> None:
    packages = (ROOT / "openclaw", ROOT / "slime" / "slime")
    folders = [path.parent for package in packages for path in package.glob("*/__init__.py")]
    assert folders
    assert not [str(folder) for folder in folders if not (folder / "README.md").is_file()]


def test_files_in_the_tables_of_folders_readmes_exist() -> None:
    missing = []
    for document in map(ROOT.joinpath, READMES):
        cells = re.findall(r"^\|([^|]+)\|", document.read_text(), re.MULTILINE)
        named = [word for cell in cells for word in re.findall(r"`([\w/]+(?:\.py|/))`", cell)]
        missing += [f"{document}: {word}" for word in named if not (document.parent / word).exists()]
    assert not missing


PROGRAMS = sorted(
    {
        found
        for name in DOCUMENTS
        for found in re.findall(r"python (openclaw-test/[\w/]+(?:\.py)?)", (ROOT / name).read_text())
        if not found.endswith(UNTRIED)
    }
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_openclaw_test_start_from_the_root_as_printed(program: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [sys.executable, program, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert "usage:" in shown.stdout


LABORATORY = sorted(
    {
        found
        for name in DOCUMENTS
        for found in re.findall(r"lab/run\.sh ([a-z][\w.]*\w)", (ROOT / name).read_text())
    }
)


def test_programs_of_the_laboratory_that_documents_name_exist() -> None:
    places = {name: ROOT.joinpath("lab", "claw_lab", *name.split(".")) for name in LABORATORY}
    assert places
    missing = [
        name
        for name, place in places.items()
        if not place.with_name(f"{place.name}.py").is_file() and not (place / "__main__.py").is_file()
    ]
    assert missing == []


def test_a_program_of_the_laboratory_starts_on_the_path_of_launch_scripts() -> None:
    """Started like by lab/run.sh, but with this Python."""
    start = (
        "source launch/env.sh; set_python_path; exec $PY -m claw_lab.benchmarks.faults.fault_scenarios --help"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        ["bash", "-c", start],
        cwd=ROOT,
        env={**environment, "ROOT": str(ROOT), "PY": sys.executable},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "usage:" in shown.stdout
