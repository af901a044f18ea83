"""Checks whether the GPU driver is new enough for the CUDA of torch and engines. It needs no packages.

`python -m slime.plan.driver VERSION [PYTHON...]` prints the problems of this driver version for these Pythons, and
has exit status 1 then. For a Python that does not exist yet, the CUDA version of the requirements is used.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

OLDEST_DRIVER = {13: 580, 12: 525}
"""The oldest driver branch for each major version of CUDA; it also supports newer minor versions."""
INSTALLED = 13
"""The CUDA version that the requirements of trainers, SGLang and vLLM install."""
REMEDY = (
    "install driver {oldest} or later; or, on data-centre GPUs (A100, L40S, H100, ...) with driver 535 or later, "
    "NVIDIA's forward-compatibility package: apt-get install cuda-compat-{major}-0, then export "
    "LD_LIBRARY_PATH=/usr/local/cuda-{major}.0/compat, and start again"
)


def problem(driver: str, needed: int, loaded: int) -> str:
    """Returns the problem of a driver with this major version of CUDA, as text; "" if there is none.

    `loaded`: the CUDA of the driver library that programs load, 0 if unknown. A forward-compatibility package contains
    one that is newer than the driver.
    """
    branch = re.match(r"\d+", driver)
    oldest = OLDEST_DRIVER.get(needed, 0)
    if branch is None or int(branch[0]) >= oldest or loaded >= needed:
        return ""
    text = f"the GPU driver is {driver}; CUDA {needed}, for which torch and the engines are built, needs {oldest}"
    return f"{text}: {REMEDY.format(oldest=oldest, major=needed)}"


def loaded_cuda() -> int:
    """Returns the major CUDA version of the driver library that programs load here; 0 if there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int(0)
        library.cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value // 1000


def needed_cuda(pythons: Iterable[str], environ: Mapping[str, str]) -> int:
    """Returns the newest major CUDA version of these Pythons' torch, installed or planned; 0 if there is none."""
    return max((_cuda_of(python, environ) for python in pythons), default=0)


def _cuda_of(python: str, environ: Mapping[str, str]) -> int:
    if not os.access(python, os.X_OK):
        index_version = re.search(r"/cu(\d\d)\d/?$", environ.get("TORCH_INDEX_URL", ""))
        return int(index_version[1]) if index_version else INSTALLED
    for version in sorted(Path(python).parents[1].glob("lib/python3*/site-packages/torch/version.py")):
        if match := re.search(r"""^cuda\b[^=]*=\s*['"](\d+)\.""", version.read_text(), re.M):
            return int(match[1])
        return 0
    unfinished = Path(python).parents[1].joinpath("pyvenv.cfg").is_file()
    return INSTALLED if unfinished else 0


def main() -> int:
    driver, *pythons = sys.argv[1:]
    needed = needed_cuda(pythons, os.environ)
    refusal = problem(driver, needed, loaded_cuda())
    print(refusal, end="\n" if refusal else "")
    return 1 if refusal else 0


if __name__ == "__main__":
    sys.exit(main())
