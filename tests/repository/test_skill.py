"""What the skill for agents says must be true of the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKILL = ROOT / "skills" / "openclaw-rl-training" / "SKILL.md"


def test_every_variable_of_the_skill_is_declared_in_its_head_and_read_by_the_code() -> None:
    _, head, body = SKILL.read_text().split("---\n", 2)
    declared = set(re.findall(r'"([A-Z][A-Z_]+)"', head))
    named = set(re.findall(r"`([A-Z][A-Z_]{3,})`", body))
    assert named == declared != set()
    for name in sorted(declared):
        found = subprocess.run(
            ["git", "grep", "-qw", name, "--", "*.py", "*.sh"], cwd=ROOT, check=False
        ).returncode
        assert found == 0, f"nothing reads {name}"


def test_the_commands_of_the_skill_exist() -> None:
    body = SKILL.read_text()
    scripts, modules = (
        re.findall(r"^bash (\S+)", body, re.M),
        set(re.findall(r"python -m (openclaw[\w.]*)", body)),
    )
    assert scripts and modules, "the skill names no command"
    for script in scripts:
        assert (ROOT / script).is_file()
    for module in modules:
        folder = ROOT / module.replace(".", "/")
        assert (folder / "__main__.py").is_file() or folder.with_suffix(".py").is_file()
