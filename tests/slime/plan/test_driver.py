"""Tests that a driver too old for the CUDA of torch or engines is detected by its version before anything is
installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slime.plan.driver import INSTALLED, needed_cuda, problem


@pytest.mark.parametrize(
    ("driver", "needed", "loaded", "refused"),
    [
        ("580.65.06", 13, 13, False),
        ("590.10", 13, 0, False),
        ("575.57.08", 13, 12, True),
        ("550.54.15", 13, 12, True),
        ("550.54.15", 13, 0, True),
        ("550.54.15", 13, 13, False),  # the forward-compatibility package is loaded
        ("550.54.15", 12, 12, False),
        ("470.82", 12, 11, True),
        ("550.54.15", 0, 0, False),  # builds for CPUs
        ("", 13, 0, False),
        ("[N/A]", 13, 0, False),
    ],
)
def test_a_driver_is_compared_with_the_cuda_that_is_needed(
    driver: str, needed: int, loaded: int, refused: bool
) -> None:
    told = problem(driver, needed, loaded)
    assert bool(told) == refused
    if refused:
        assert driver in told and f"cuda-compat-{needed}-0" in told and "LD_LIBRARY_PATH" in told


def python_with_torch(folder: Path, cuda: str) -> str:
    """Creates an environment with a torch that was built for this CUDA."""
    packages = folder / "lib" / "python3.12" / "site-packages" / "torch"
    packages.mkdir(parents=True)
    (packages / "version.py").write_text(f"cuda: Optional[str] = {cuda}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return str(folder / "bin" / "python")


def test_the_needed_cuda_is_of_the_installed_torch_or_else_of_the_requirements(
    tmp_path: Path,
) -> None:
    old, none = python_with_torch(tmp_path / "old", "'12.6'"), python_with_torch(tmp_path / "cpu", "None")
    absent = str(tmp_path / "nowhere" / "bin" / "python")
    assert needed_cuda([old], {}) == 12 and needed_cuda([none], {}) == 0
    assert needed_cuda([old, absent], {}) == INSTALLED
    assert needed_cuda([absent], {"TORCH_INDEX_URL": "https://download.pytorch.org/whl/cu126"}) == 12
    assert needed_cuda([], {}) == 0
    (tmp_path / "cpu" / "lib" / "python3.12" / "site-packages" / "torch" / "version.py").unlink()
    assert needed_cuda([none], {}) == 0, "torch lies where this does not look"
    (tmp_path / "cpu" / "pyvenv.cfg").write_text("")
    assert needed_cuda([none], {}) == INSTALLED, "its installation was interrupted"
