"""Provides missing packages of a bare machine: wheels that are brought along, and replacements for functions that an
older torch or transformers lacks.

A machine that is lent for minutes has a Python with torch, and no network. `prepare` downloads a few wheels for its
Python 3.12 into build/gpu_check, which git ignores; `unpacked` adds them to the path there. Without them the check
runs the sections that it can. This module needs no package, since the packages must be on the path before torch is
imported.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "build" / "gpu_check"
LOCK = ROOT / "instructions" / "locks" / "trainer.txt"
MODULES = {
    "pydantic": "pydantic",
    "pydantic-core": "pydantic_core",
    "annotated-types": "annotated_types",
    "typing-inspection": "typing_inspection",
    "typing-extensions": "typing_extensions",
    "transformers": "transformers",
    "peft": "peft",
    "bitsandbytes": "bitsandbytes",
    "flash-linear-attention": "fla",
    "fla-core": "fla",
    "megatron-core": "megatron",
}
"""Packages that are brought along, and the module of each."""
PYTHON = (3, 12)
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_24_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
KEPT_KERNELS = ("cuda130", "_cpu")
"""Libraries of bitsandbytes that are kept, of one for each CUDA version: those for CUDA 13.0 are 3.6 MB of 43."""


def prepare(folder: Path = FOLDER) -> int:
    """Downloads the wheels; returns an exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    how = ["--no-deps", "--only-binary=:all:", "--python-version", "{}.{}".format(*PYTHON), *platforms]
    command = [sys.executable, "-m", "pip", "download", "-q", *how, "-d", str(folder), *pinned_packages()]
    if status := subprocess.run(command).returncode:
        return status
    for wheel in folder.glob("bitsandbytes-*.whl"):
        slim(wheel)
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl")) / 1e6
    print(f"{size:.0f} MB in {folder}: take this folder along, then bash lab/run.sh long.gpu_check")
    return 0


def pinned_packages() -> list[str]:
    """Returns the packages with their pinned versions."""
    lines = LOCK.read_text().splitlines() + (ROOT / "requirements-dev.txt").read_text().splitlines()
    pins = dict(line.split("==", 1) for line in reversed(lines) if "==" in line and not line.startswith("#"))
    return [f"{name}=={pins[name].split(';')[0].strip()}" for name in MODULES]


def slim(wheel: Path) -> None:
    """Removes the libraries for other versions of CUDA from a wheel."""
    smaller = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as part:
        for entry in whole.infolist():
            if not entry.filename.endswith(".so") or any(kind in entry.filename for kind in KEPT_KERNELS):
                part.writestr(entry, whole.read(entry))
    smaller.replace(wheel)


def unpacked(folder: Path = FOLDER) -> Path | None:
    """Adds the packages that were brought along to the path of this process and its children; returns their folder.

    None if there are none for this Python.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels or sys.version_info[:2] != PYTHON:
        return None
    site = folder / "site"
    if not site.exists():
        part = folder / f"site.{os.getpid()}"
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(part)
        try:
            part.replace(site)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return site


def lacking(error: Exception) -> str | None:
    """Returns the missing package of this error, if it is one of those that are brought along."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return name if name in MODULES.values() else None


def make_do() -> list[str]:
    """Adds functions of the pinned torch and transformers to older ones; returns the names. Call it before other modules
    import them.

        torch 2.11's kernel accepts fewer key heads without a flag. transformers 5.17 has activation checkpoints under an
        older name.
    """
    import torch.nn.attention.varlen as varlen
    from transformers import PreTrainedModel

    added = []
    if "enable_gqa" not in inspect.signature(varlen.varlen_attn).parameters:
        plain = varlen.varlen_attn

        def varlen_attn(*rows: Any, enable_gqa: bool = False, **how: Any) -> Any:
            return plain(*rows, **how)

        varlen.varlen_attn = varlen_attn  # type: ignore[assignment]
        added.append("varlen_attn(enable_gqa=)")
    if not hasattr(PreTrainedModel, "activation_checkpointing_enable"):

        def enable(self: Any, activation_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
            self.gradient_checkpointing_enable(gradient_checkpointing_kwargs=activation_checkpointing_kwargs)

        PreTrainedModel.activation_checkpointing_enable = enable
        added.append("activation_checkpointing_enable")
    return added
