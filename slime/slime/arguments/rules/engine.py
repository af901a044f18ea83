"""Refuses engines that cannot be: GPUs that do not divide, flags of another engine, an engine that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slime.engines.client import KEEPS_MEMORY
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

PREFIXES = {"--": "rollout", "--prm-teacher-": "teacher", "--prm-": "prm"}
"""What stands before `sglang-` or `vllm-` in flags that go to the engine itself, and to which servers: those of the first
go to all."""
ROUTER = "--sglang-router-"  # slime's own flags of a router, which it does not have


def take_engine_words(words: Sequence[str], backend: str) -> tuple[list[str], dict[str, list[str]]]:
    """Takes the own flags of SGLang or vLLM with all of their values out of words that no other parser knows.

    Returns:
        What is left, and by part the words, each flag written `--sglang-NAME` or `--vllm-NAME`.
    """
    prefixes = {f"{prefix}{backend}-": part for prefix, part in PREFIXES.items()}
    left: list[str] = []
    taken: dict[str, list[str]] = {}
    current = left
    for word in words:
        if word.startswith("--"):
            plain = word.split("=", 1)[0].replace("_", "-")
            prefix = next((prefix for prefix in prefixes if plain.startswith(prefix)), None)
            prefix = None if plain.startswith(ROUTER) else prefix
            current = left if prefix is None else taken.setdefault(prefixes[prefix], [])
            word = word if prefix is None else f"--{backend}-" + word[len(prefix) :]
        current.append(word)
    return left, taken


PYTHON_VARIABLES = {"sglang": "SGLANG_PYTHON", "vllm": "VLLM_PYTHON"}


def python_of(backend: str, env: Mapping[str, str]) -> str | None:
    """The Python that the engine's own variable names; that of the other engine may be exported for other runs."""
    return env.get(PYTHON_VARIABLES.get(backend, "")) or None


def check_engine(args: Arguments) -> None:
    """Checks the flags of `slime.arguments.groups.engine`. Raises ConfigError."""
    if args.rollout_backend == "vllm" and (
        args.colocate if args.offload_rollout is None else args.offload_rollout
    ):
        raise ConfigError(
            f"--offload-rollout (which --colocate means): vLLM {KEEPS_MEMORY}, or add --no-offload-rollout"
        )
    check_external(args)
    check_transport(args)
    splits = [
        ("--rollout-num-gpus", args.rollout_num_gpus, args.rollout_num_gpus_per_engine),
        ("--prm-num-gpus", args.prm_num_gpus, args.prm_num_gpus_per_engine),
    ]
    for name, gpus, per_engine in splits:
        if per_engine < 1 or gpus % per_engine:
            raise ConfigError(f"{name} {gpus} does not divide into engines of {name}-per-engine {per_engine}")
        if args.rollout_backend == "embedded" and gpus and per_engine != 1:
            raise ConfigError(
                f"{name}-per-engine {per_engine}: the embedded engine uses one GPU; use sglang or vllm"
            )
    if args.rollout_backend == "embedded" and args.prm_teacher_num_gpus > 1:
        raise ConfigError(
            f"--prm-teacher-num-gpus {args.prm_teacher_num_gpus}: the embedded engine uses one GPU; use sglang or vllm"
        )
    if args.rollout_backend == "embedded" and args.engine_python is not None:
        args.engine_python = None  # SGLANG_PYTHON may be exported for other runs


def check_transport(args: Arguments) -> None:
    """Refuses weights by broadcast to engines that take none. Raises ConfigError."""
    if args.update_weight_transport == "disk":
        return
    name = f"--update-weight-transport {args.update_weight_transport}"
    if args.rollout_backend != "sglang":
        raise ConfigError(
            f"{name}: the engines of --rollout-backend {args.rollout_backend} read each version from its folder; drop it"
        )
    if args.colocate:
        raise ConfigError(
            f"{name}: with --colocate engine and trainer share a GPU, which NCCL does not join to itself, and the folder "
            "is on their machine; drop one of them"
        )
    words = [word.replace("_", "-") for word in args.engine_words.get("rollout", [])]
    for divided in ("pp-size", "pipeline-parallel-size", "dp-size", "data-parallel-size"):
        if _value(words, f"--sglang-{divided}") not in (None, "1"):
            raise ConfigError(
                f"{name}: SGLang takes no weights by broadcast with --{divided}; drop one of them"
            )


def _value(words: Sequence[str], name: str) -> str | None:
    """The value of a flag among words, as `--name value` or `--name=value`."""
    for place, word in enumerate(words):
        if word == name:
            return words[place + 1] if place + 1 < len(words) else ""
        if word.startswith(name + "="):
            return word.removeprefix(name + "=")
    return None


def check_external(args: Arguments) -> None:
    """Engines that others run: their addresses as URLs, and nothing that own ones would need. Raises ConfigError."""
    name, given = "--rollout-external-engine-addrs", args.rollout_external_engine_addrs
    if args.rollout_external and not given:
        raise ConfigError(f"--rollout-external: name the engines with {name} HOST:PORT ...")
    if not given:
        return
    args.rollout_external_engine_addrs = [engine_url(address) for address in given]
    if len(set(args.rollout_external_engine_addrs)) < len(given):
        raise ConfigError(f"{name} names an engine twice: {' '.join(given)}")
    if args.rollout_num_gpus:
        raise ConfigError(
            f"--rollout-num-gpus {args.rollout_num_gpus}: the engines of {name} have GPUs of their own; set it to 0 "
            "(ROLLOUT_GPUS=0)"
        )
    if args.engine_port:
        raise ConfigError(
            f"--engine-port {args.engine_port} is of engines that slime starts, and {name} names others"
        )
    if args.colocate:
        raise ConfigError(
            f"--colocate shares GPUs with engines that slime starts, and {name} names others; drop one"
        )


def engine_url(address: str) -> str:
    """`10.0.0.2:15000` -> `http://10.0.0.2:15000`. Raises ConfigError for what is no address."""
    url = address.rstrip("/") if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.path
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"--rollout-external-engine-addrs {address}: write HOST:PORT, such as 10.0.0.2:15000"
        )
    return url
