"""Documents are correct: generated tables are current, links work, and printed commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw.judge.settings import markdown as judge_table
from openclaw.settings import markdown as gateway_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)


@pytest.mark.parametrize(
    ("name", "generated", "command"),
    [
        ("settings", gateway_table(), "python -m openclaw.settings --markdown"),
        ("judge settings", judge_table(), "python -m openclaw.judge.settings"),
    ],
)
def test_tables_of_settings_are_generated(name: str, generated: str, command: str) -> None:
    text = (ROOT / "instructions" / "settings.md").read_text()
    table = re.search(rf"<!-- {name}: .*?-->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    assert table is not None
    assert table.group(1).strip() == generated.strip(), f"paste the output of: {command}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_scripts_of_documents_exist(document: Path) -> None:
    text = document.read_text()
    links = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [link for link in links if link and not (document.parent / link).exists()]
    scripts = re.findall(r"^(?:bash|python) ([\w./-]+\.(?:sh|py))", text, re.MULTILINE)
    missing += [script for script in scripts if not (ROOT / script).exists()]
    assert not missing


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "openclaw.server", "--help"],
        ["-m", "openclaw.judge.worker", "--help"],
        ["-m", "slime.arguments", "--markdown"],
        ["slime/train_async.py", "--help"],
    ],
    ids=" ".join,
)
def test_commands_of_the_documents_show_their_help(command: list[str]) -> None:
    path = f"{ROOT}:{ROOT / 'base'}:{ROOT / 'slime'}"
    shown = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={"PYTHONPATH": path, "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "--" in shown.stdout


def test_tests_that_the_tests_readme_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "tests" / "README.md").read_text()))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named and named <= there, named - there
