"""`python bare_gpu_machine.py ARGUMENT...`: simulates the GPU check on a machine that is available for minutes.

Packages that such a machine lacks cannot be imported, and torch and transformers have older signatures.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import re
import runpy
from collections.abc import Sequence
from typing import Any

THERE = """
    accelerate annotated-doc anyio certifi charset-normalizer click einops filelock fsspec h11 hf-xet httpcore httpx
    huggingface-hub idna jinja2 markdown-it-py markupsafe mdurl mpmath networkx ninja numpy packaging peft pillow psutil
    pygments pyyaml regex requests rich safetensors scipy setuptools shellingham sympy tensorboard tokenizers torch tqdm
    transformers triton typer typing-extensions urllib3 xxhash
    httpx2 httpcore2 truststore
"""
"""The packages of such a machine, among those installed here. Those in the last line are needed by a newer
huggingface-hub than it has."""


def hide_packages() -> None:
    """Makes only these packages importable."""
    there = set(THERE.split())
    hidden = {
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if not there & {re.sub(r"[-_.]+", "-", package).lower() for package in packages}
    } - {"slime"}
    find = importlib.machinery.PathFinder.find_spec

    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in hidden else find(name, path, target)

    importlib.machinery.PathFinder.find_spec = find_spec  # type: ignore[method-assign, assignment]


def make_older() -> None:
    import torch.nn.attention.varlen as varlen
    from transformers import PreTrainedModel

    plain = varlen.varlen_attn

    def varlen_attn(
        query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int,
        return_aux: Any = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
    ) -> Any:  # fmt: skip
        how = {"return_aux": return_aux, "scale": scale, "window_size": window_size, "enable_gqa": True}
        return plain(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **how)

    varlen.varlen_attn = varlen_attn  # type: ignore[assignment]

    def gradient_checkpointing_enable(self: Any, gradient_checkpointing_kwargs: Any = None) -> None:
        self._activation_checkpointing_enable(gradient_checkpointing_kwargs)

    PreTrainedModel.gradient_checkpointing_enable = gradient_checkpointing_enable
    del PreTrainedModel.activation_checkpointing_enable


if __name__ == "__main__":
    hide_packages()
    make_older()
    runpy.run_module("claw_lab.long.gpu_check", run_name="__main__", alter_sys=True)
