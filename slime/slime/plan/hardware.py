"""Well-known GPUs: memory as reported by the driver, memory bandwidth, and the bf16 peak of dense matrix products."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace

from slime.errors import ConfigError

GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """A GPU: `memory` in GiB, `peak` in TFLOP/s without sparsity, `bandwidth` in TB/s (NVIDIA's data sheets); an
    A100's values if unknown."""

    name: str
    memory: float
    peak: float
    bandwidth: float = 2.039


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("RTX3090", 24.0, 71.0, 0.936),
        Gpu("RTX4090", 24.0, 165.2, 1.008),
        Gpu("RTX5090", 31.8, 209.5, 1.792),
        Gpu("A10", 22.5, 125.0, 0.6),
        Gpu("L4", 22.5, 121.0, 0.3),
        Gpu("L40S", 45.0, 362.0, 0.864),
        Gpu("A100-40", 39.5, 312.0, 1.555),
        Gpu("A100", 79.3, 312.0, 2.039),
        Gpu("H100", 79.6, 989.0, 3.35),
        Gpu("H200", 139.8, 989.0, 4.8),
        Gpu("B200", 178.4, 2250.0, 8.0),
    )
}
DEFAULT = "H100"


def parse_gpus(text: str) -> tuple[int, Gpu]:
    """Parses `8xH100`, `1x24GB` or `H100`: number and type.

    Raises:
        ConfigError: an unknown GPU without a memory size.
    """
    match = re.fullmatch(r"(?:(\d+)x)?(.+)", text.strip())
    if match is None:
        raise ConfigError("--gpus is empty; write for example 8xH100")
    return int(match[1] or 1), named_gpu(match[2])


def named_gpu(name: str) -> Gpu:
    """Returns a GPU by name, or by memory only (`24GB`), then with the speed of an A100."""
    plain = re.sub(r"[\s_]", "", name).upper()
    if plain in GPUS:
        return GPUS[plain]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)GI?B", plain):
        return replace(GPUS["A100"], name=name, memory=float(size[1]))
    raise ConfigError(f"GPU {name} is not known; write one of {', '.join(GPUS)}, or its memory, such as 24GB")


def gpus_here() -> list[Gpu]:
    """Returns the GPUs listed by nvidia-smi; [] without that program or a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    if answer.returncode != 0:
        return []
    gpus = [_listed(line) for line in answer.stdout.splitlines() if line.count(",") == 1]
    return [gpu for gpu in gpus if gpu is not None]


def _listed(line: str) -> Gpu | None:
    """Parses `NVIDIA H100 80GB HBM3, 81559`; the peak is that of the known GPU whose name it contains. Returns None
    for a GPU that shares the machine's memory, whose size nvidia-smi does not report (`[N/A]`)."""
    name, mebibytes = (part.strip() for part in line.split(","))
    if not mebibytes.isdigit():
        return None
    words = name.upper().replace(" ", "")
    like = next((gpu for key, gpu in sorted(GPUS.items(), reverse=True) if key.split("-")[0] in words), None)
    return replace(like or GPUS["A100"], name=name, memory=float(mebibytes) / 1024)
