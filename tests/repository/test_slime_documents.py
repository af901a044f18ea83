"""Generated parts of slime's documents are fresh."""

from __future__ import annotations

import re
from pathlib import Path

from slime.arguments.__main__ import markdown as arguments
from slime.hooks.__main__ import markdown as hooks

SLIME = Path(__file__).parents[2] / "slime"


def test_the_table_of_hooks_is_generated() -> None:
    found = re.search(
        r"<!-- hooks: .*?-->\n(.*?)\n<!-- end of hooks -->",
        (SLIME / "docs" / "hooks.md").read_text(),
        re.DOTALL,
    )
    assert found is not None
    assert found.group(1) == hooks(), "paste the output of: python -m slime.hooks"


def test_the_table_of_flags_is_generated() -> None:
    written = (SLIME / "ARGUMENTS.md").read_text()
    assert written == arguments() + "\n", "run: python -m slime.arguments --markdown > slime/ARGUMENTS.md"
