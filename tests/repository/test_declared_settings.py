"""Product code declares its settings: only claw_base.settings adds flags to a parser itself."""

from __future__ import annotations

import ast
from pathlib import Path

from tests import ROOT

PRODUCT = (
    "base/claw_base",
    "openclaw",
    "slime/slime",
    "slime/tools",
    "launch",
    "openclaw-rl",
    "openclaw-opd",
)
PRODUCT += (
    "openclaw-combine",
    "openclaw-tinker",
    "openclaw-fireworks",
    "gui-rl",
    "swe-rl",
    "terminal-rl",
    "toolcall-rl",
)
DECLARES = "base/claw_base/settings/"
LEFT = {
    # the flag --version of hand-written parsers
    "openclaw/common/version.py": 1,
    "slime/slime/arguments/__main__.py": 1,
    # the parser of declared flags and of those that plug-ins define
    "slime/slime/arguments/parser.py": 6,
    # --backend, and then the flags of that engine
    "slime/slime/engines/launch.py": 1,
    # flags that differ by engine
    "slime/slime/engines/third_party.py": 8,
    "launch/rented_run/flags.py": 2,
    # arguments of a browser, not of a parser
    "gui-rl/gui_rl/screens/webdriver.py": 1,
}
"""Remaining calls by file; a number may only decrease."""


def test_only_the_declarations_of_settings_add_flags_to_a_parser() -> None:
    found: dict[str, int] = {}
    for path in (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if calls := _calls(path):
            found[name] = calls
    more = {name: calls for name, calls in found.items() if calls > LEFT.get(name, 0)}
    assert {name: calls for name, calls in more.items() if not name.startswith(DECLARES)} == {}


def test_the_list_contains_only_existing_calls() -> None:
    assert {name: _calls(ROOT / name) for name in LEFT} == LEFT


def _calls(path: Path) -> int:
    """Returns mentions of add_argument: calls, and aliases such as `add = parser.add_argument`."""
    source = path.read_text()
    if "add_argument" not in source:
        return 0
    nodes = ast.walk(ast.parse(source))
    return sum(isinstance(node, ast.Attribute) and node.attr == "add_argument" for node in nodes)
