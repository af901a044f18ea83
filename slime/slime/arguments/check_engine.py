"""Refuses engines that cannot be: GPUs that do not divide, flags of another engine, an engine that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

PREFIXES = {"--sglang-": "rollout", "--prm-teacher-sglang-": "teacher", "--prm-sglang-": "prm"}
"""Flags that go to SGLang itself, and to which servers: those of the first go to all."""


def take_engine_words(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Takes SGLang's own flags with all of their values out of words that no other parser knows.

    Returns:
        What is left, and by part the words, each flag written `--sglang-NAME`.
    """
    left: list[str] = []
    taken: dict[str, list[str]] = {}
    current = left
    for word in words:
        if word.startswith("--"):
            plain = word.split("=", 1)[0].replace("_", "-")
            prefix = next((prefix for prefix in PREFIXES if plain.startswith(prefix)), None)
            current = left if prefix is None else taken.setdefault(PREFIXES[prefix], [])
            word = word if prefix is None else "--sglang-" + word[len(prefix) :]
        current.append(word)
    return left, taken


def check_engine(args: Arguments) -> None:
    """Checks the flags of `slime.arguments.engine`. Raises ConfigError."""
    if args.rollout_backend == "vllm":
        raise ConfigError(
            "--rollout-backend vllm is not taken: its weight reload answers 200 and leaves the LM head of models "
            "with tied embeddings stale, and its API does not speak /generate; use sglang or embedded"
        )
    splits = [
        ("--rollout-num-gpus", args.rollout_num_gpus, args.rollout_num_gpus_per_engine),
        ("--prm-num-gpus", args.prm_num_gpus, args.prm_num_gpus_per_engine),
    ]
    for name, gpus, per_engine in splits:
        if per_engine < 1 or gpus % per_engine:
            raise ConfigError(f"{name} {gpus} does not divide into engines of {name}-per-engine {per_engine}")
        if args.rollout_backend == "embedded" and gpus and per_engine != 1:
            raise ConfigError(f"{name}-per-engine {per_engine}: the embedded engine uses one GPU; use sglang")
    if args.rollout_backend == "embedded" and args.prm_teacher_num_gpus > 1:
        raise ConfigError(
            f"--prm-teacher-num-gpus {args.prm_teacher_num_gpus}: the embedded engine uses one GPU; use sglang"
        )
    if args.rollout_backend != "sglang" and args.engine_python is not None:
        args.engine_python = None  # SGLANG_PYTHON may be exported for other runs
