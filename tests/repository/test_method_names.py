"""The framework knows no method by name: what a method is stands in the method's folder."""

from __future__ import annotations

import re
import subprocess

from tests import ROOT

METHODS = re.compile(
    r"topk_select|opd_topk|combine_w|binary_rl|OPENCLAW_|openclaw|hybrid method|--(topk|combine)-"
)


def test_no_file_of_slime_names_a_method_or_the_runtime() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "slime/slime"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    found = [
        f"{file}: {line}"
        for file in files
        if file.is_file()
        for line in file.read_text().splitlines()
        if METHODS.search(line)
    ]
    assert found == []
