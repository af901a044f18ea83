"""The dtype that an embedded engine serves on the CPU, and in which its versions are exported. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path

from slime.weights.versions import read_live

BF16, FP32 = "bfloat16", "float32"


def dtype_on_cpu(bf16: bool, run_dir: Path) -> str:
    """Returns the dtype of the run's versions: bf16 with --bf16, in which training computes then, else fp32. An
    existing run keeps the dtype of its versions, because earlier releases served fp32 on every CPU."""
    live = read_live(run_dir) if run_dir.is_dir() else None
    dtypes = set[str]() if live is None else dtypes_of(Path(live.path))
    if dtypes:
        return BF16 if "BF16" in dtypes else FP32
    return BF16 if bf16 else FP32


def dtypes_of(folder: Path) -> set[str]:
    """Returns the dtypes of the matrices in a folder's full weights, in safetensors' names (F32, BF16); empty without
    such a file."""
    dtypes: set[str] = set()
    for path in sorted(folder.glob("model*.safetensors"))[:1]:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        dtypes |= {one["dtype"] for one in header.values() if len(one.get("shape", ())) > 1}
    return dtypes
