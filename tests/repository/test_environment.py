"""Who reads environment variables in slime/slime: flags get theirs in one place, and the others are listed here.

`openclaw` reads them in one file: tests/openclaw/test_settings.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

WHOLE = "all"
"""The environment as a whole: to find variables of flags, or to hand it to a process."""
READS = {
    "arguments/parser.py": {WHOLE},  # the variables of all flags
    "engines/sglang/launch.py": {WHOLE},
    "engines/sglang/toolchain.py": {WHOLE},
    "engines/vllm/launch.py": {WHOLE},
    "plan/dry_run.py": {WHOLE},
    "processes/servers.py": {WHOLE},
    "processes/supervisor.py": {WHOLE},
    "ray/__init__.py": {"RAY_ADDRESS"},
    "ray/run.py": {WHOLE},
    "ray/runtime.py": {WHOLE, "RAY_ADDRESS"},
    "rollout/rm_hub/grader.py": {WHOLE},
}


def reads(path: Path) -> Iterator[str]:
    """Names of the variables that a file reads, and `WHOLE`. Setting a variable is no read."""
    tree = ast.parse(path.read_text())
    inside = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"):
            continue
        parent = inside[node]
        if node.attr == "getenv" and isinstance(parent, ast.Call):
            yield ast.literal_eval(parent.args[0])
        elif node.attr == "environ" and isinstance(parent, ast.Subscript):
            if isinstance(parent.ctx, ast.Load):
                yield ast.literal_eval(parent.slice)
        elif (
            node.attr == "environ"
            and isinstance(parent, ast.Attribute)
            and parent.attr in ("get", "setdefault")
        ):
            call = inside[parent]
            assert isinstance(call, ast.Call)
            if parent.attr == "get":
                yield ast.literal_eval(call.args[0])
        elif node.attr in ("environ", "environb"):
            yield WHOLE


def test_every_read_of_the_environment_is_listed() -> None:
    package = ROOT / "slime" / "slime"
    found = {path.relative_to(package).as_posix(): set(reads(path)) for path in package.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == READS
