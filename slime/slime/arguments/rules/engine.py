"""Collects the flags that are passed to engines; rejects indivisible GPU counts and invalid addresses."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slime.errors import ConfigError
from slime.flags.run import STARTS
from slime.processes.control import SHARED_MEMORY

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.engine import EngineArguments

PREFIXES = {"--": "rollout", "--prm-teacher-": "teacher", "--prm-": "prm"}
"""Prefixes before `sglang-` or `vllm-` of flags passed to engines, and the servers that receive them; the
first prefix is for all."""
ROUTER = "--sglang-router-"  # flags of the original slime's router, which is not needed here


def split_engine_arguments(
    words: Sequence[str], backend: str, known: Collection[str] = ()
) -> tuple[list[str], dict[str, list[str]]]:
    """Removes the flags for SGLang or vLLM, with their values, from a command line.

    Args:
        known: flags that are not the engine's own, despite their names.

    Returns:
        The remaining arguments, and the engine's by part, each flag written `--sglang-NAME` or `--vllm-NAME`.
    """
    prefixes = {f"{prefix}{backend}-": part for prefix, part in PREFIXES.items()}
    left: list[str] = []
    taken: dict[str, list[str]] = {}
    current = left
    for word in words:
        name = word.split("=", 1)[0]
        if word.startswith("--") or name in known:
            plain = name.replace("_", "-")
            prefix = next((prefix for prefix in prefixes if plain.startswith(prefix)), None)
            prefix = None if plain.startswith(ROUTER) or name in known else prefix
            current = left if prefix is None else taken.setdefault(prefixes[prefix], [])
            word = word if prefix is None else f"--{backend}-" + word[len(prefix) :]
        current.append(word)
    return left, taken


THIRD_PARTY = ("sglang", "vllm")
PYTHON_VARIABLES = {"sglang": "SGLANG_PYTHON", "vllm": "VLLM_PYTHON"}


def python_of(backend: str, env: Mapping[str, str]) -> str | None:
    """Returns the Python from the selected engine's own variable, since the other engine's may be set for
    other runs."""
    return env.get(PYTHON_VARIABLES.get(backend, "")) or None


def check_engine(args: Arguments) -> None:
    """Checks the flags of `slime.flags.engine` that need computation or depend on the engine's own flags.

    Raises:
        ConfigError: the message names the contradiction and the remedy.
    """
    check_external(args)
    check_gate_engine(args)
    if args.engine_start_timeout is None:
        args.engine_start_timeout = STARTS[args.rollout_backend]
    if args.update_weight_transport == "nccl":
        check_broadcast(args)
    if args.update_weight_transport == "tensor" and not os.access(SHARED_MEMORY, os.W_OK):
        raise ConfigError(
            f"--update-weight-transport tensor: {SHARED_MEMORY} is missing or not writable; use disk"
        )
    splits = [
        ("--rollout-num-gpus", args.rollout_num_gpus, args.rollout_num_gpus_per_engine, "TP"),
        (
            "--prm-num-gpus",
            args.prm_num_gpus,
            args.prm_num_gpus_per_engine,
            "PRM_NUM_GPUS_PER_ENGINE, else TP",
        ),
    ]
    for name, gpus, per_engine, variable in splits:
        if gpus % per_engine:
            raise ConfigError(
                f"{name} {gpus} is not divisible by {name}-per-engine {per_engine} (of launch "
                f"scripts: {variable})"
            )
    if args.rollout_backend in THIRD_PARTY:
        return
    args.engine_python = None  # SGLANG_PYTHON may be set for other runs
    if args.prm_teacher_num_gpus > 1:
        raise ConfigError(
            f"--prm-teacher-num-gpus {args.prm_teacher_num_gpus}: the embedded engine uses one GPU; use sglang or vllm"
        )


def check_broadcast(args: EngineArguments) -> None:
    """Rejects SGLang parallelism that does not support weight broadcasts. Raises ConfigError."""
    words = [word.replace("_", "-") for word in args.engine_words.get("rollout", [])]
    for divided in ("pp-size", "pipeline-parallel-size", "dp-size", "data-parallel-size"):
        if _value(words, f"--sglang-{divided}") not in (None, "1"):
            raise ConfigError(
                "--update-weight-transport nccl: SGLang does not support weight broadcasts with "
                f"--{divided}; remove one of them"
            )


def _value(words: Sequence[str], name: str) -> str | None:
    """Returns the value of a flag in a command line, as `--name value` or `--name=value`."""
    for place, word in enumerate(words):
        if word == name:
            return words[place + 1] if place + 1 < len(words) else ""
        if word.startswith(name + "="):
            return word.removeprefix(name + "=")
    return None


def check_external(args: EngineArguments) -> None:
    """Converts the addresses of external engines to URLs. Raises ConfigError for an invalid or duplicate one."""
    addresses = args.rollout_external_engine_addrs
    args.rollout_external_engine_addrs = [engine_url(address) for address in addresses]
    if len(set(args.rollout_external_engine_addrs)) < len(addresses):
        raise ConfigError(f"--rollout-external-engine-addrs contains duplicates: {' '.join(addresses)}")


def check_gate_engine(args: Arguments) -> None:
    """Converts the address of a spare engine to a URL.

    Raises:
        ConfigError: the address is of an engine that serves, or an unknown keyword.
    """
    text = args.gate_engine
    if text in ("auto", "serving", "cpu"):
        return
    try:
        args.gate_engine = engine_url(text)
    except ConfigError:
        raise ConfigError(
            f"--gate-engine {text} must be auto, serving, cpu, or the HOST:PORT of a spare engine"
        ) from None
    if args.gate_engine in args.rollout_external_engine_addrs:
        raise ConfigError(
            f"--gate-engine {text}: this engine serves requests, which candidates would answer; "
            "use a spare engine"
        )


def engine_url(address: str) -> str:
    """Converts `10.0.0.2:15000` to `http://10.0.0.2:15000`. Raises ConfigError for anything else."""
    url = address.rstrip("/") if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.path
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"--rollout-external-engine-addrs {address} must be HOST:PORT, such as 10.0.0.2:15000"
        )
    return url
