"""Paths, for tests in folders of any depth."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
FAKES = ROOT / "tests" / "fakes"
MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"
"""The tiny chat model of this repository, with its tokenizer and chat template."""
