"""Passes all `--sglang-FLAG` in our documents, messages and scripts to the parser of a real SGLang.

python -m claw_lab.long.named_flags PYTHON_THAT_HAS_SGLANG
"""

from __future__ import annotations

import re
import sys

from claw_lab import ROOT
from slime.engines.sglang.launch import SGLANG

FLAG = re.compile(r"--(?:prm-)?(?:teacher-)?sglang-([a-z][a-z0-9-]*[a-z0-9])")
VALUES = {
    "chunked-prefill-size": "512",
    "context-length": "4096",
    "cuda-graph-max-bs-decode": "8",
    "dp-size": "1",
    "enable-deterministic-inference": None,
    "enable-lora": None,
    "enable-memory-saver": None,
    "enable-weights-cpu-backup": None,
    "incremental-streaming-output": None,
    "lora-target-modules": "all",
    "max-loaded-loras": "8",
    "max-lora-rank": "32",
    "max-loras-per-batch": "8",
    "max-running-requests": "8",
    "max-total-tokens": "32768",
    "mem-fraction-static": "0.8",
    "pp-size": "1",
    "reasoning-parser": "qwen3",
    "stream-interval": "4",
    "tool-call-parser": "qwen25",
    "tp-size": "1",
}
"""A value of each flag; None for a switch."""


def named() -> set[str]:
    """Returns the names after `--sglang-` in documents, messages and scripts, without those that are rejected or
    reserved."""
    places = [ROOT / "README.md", *ROOT.glob("instructions/*.md"), *ROOT.glob("launch/*.sh")]
    places += [
        *ROOT.glob("openclaw-*/*.sh"),
        *ROOT.glob("slime/docs/*.md"),
        *ROOT.glob("slime/slime/**/*.py"),
    ]
    names = {name for place in places for name in FLAG.findall(place.read_text(encoding="utf-8"))}
    return {name for name in names if name not in SGLANG.ours and not name.startswith("router")}


def main() -> int:
    words: list[str] = []
    for name in sorted(named()):
        value = VALUES[name]  # a name without a value belongs in the table
        words += [f"--{name}"] if value is None else [f"--{name}", value]
    print(f"SGLang {SGLANG.check(sys.argv[1], words)} takes all of: {' '.join(sorted(named()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
