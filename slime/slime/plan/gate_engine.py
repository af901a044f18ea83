"""Chooses the engine that answers the gate's questions with a candidate's weights: the configured one, or the first
that works."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psutil

from slime.errors import ConfigError
from slime.plan.hardware import GIB
from slime.plan.shape import FAMILIES, Shape, read_config, shape_of
from slime.utils.idle_processors import usable_cpus

if TYPE_CHECKING:
    from slime.flags.sides import ServingSide

logger = logging.getLogger(__name__)

AUTO, SERVING, CPU = "auto", "serving", "cpu"
MAX_PARAMETERS = 5e9
"""Above it, answers on a CPU would take longer than training a batch."""
MIN_CPUS = 8
"""Below it, serving and training would be slowed down by the gate's engine."""
HOST_SHARE = 0.5
"""Share of the machine's memory that an automatically started gate engine may use."""
BYTES = 8
"""Bytes a parameter: the engine's own weights and a version, in fp32."""


def gate_engine_of(args: ServingSide) -> str:
    """Returns `serving`, `cpu` or the URL of a spare engine. auto: the serving engine if it can answer with a
    candidate; else an engine on the CPU, if the machine has the resources; else the serving engine, without answers.
    """
    if args.gate_engine != AUTO:
        return args.gate_engine
    if not args.gate or args.gate_samples_path is None or serves_candidates(args):
        return SERVING
    return CPU if why_no_cpu(args) is None else SERVING


def check_gate_engine(args: ServingSide) -> None:
    """Raises ConfigError if the gate's engine runs on the CPU and does not support this model."""
    if not args.gate or gate_engine_of(args) != CPU:
        return
    config, _ = read_config(args.hf_checkpoint)
    if {**config, **(config.get("text_config") or {})}.get("model_type") in FAMILIES:
        shape = shape_of(config, args.hf_checkpoint)
        if shape.experts or shape.linear_attention:
            raise ConfigError(
                "--gate-engine cpu: the embedded engine supports no mixtures of experts and no linear attention; "
                "remove it"
            )


def log_gate_engine(args: ServingSide) -> None:
    """Logs which engine examines updates, or a warning if none does."""
    if not args.gate or args.gate_samples_path is None:
        return
    if (words := unexamined(args)) is not None:
        logger.warning("%s", words)
    else:
        logger.info("updates are tested on explicit requests and questions by %s", in_words(args))


def serves_candidates(args: ServingSide) -> bool:
    """Returns whether the serving engine can hold a second set of weights while the trainer works."""
    return args.rollout_backend == "embedded" and not args.offload_rollout


def unexamined(args: ServingSide) -> str | None:
    """Returns why no engine tests updates on explicit requests; None if one does."""
    if gate_engine_of(args) != SERVING or serves_candidates(args):
        return None
    limitation = (
        "frees its memory during training"
        if args.rollout_backend == "embedded"
        else "can hold only one set of weights"
    )
    rented = args.rollout_backend == "rented"
    reason = None if rented or args.gate_engine == SERVING else why_no_cpu(args)
    cpu_reason = f"; no engine is started on the CPU: {reason}" if reason else ""
    remedy = "" if rented else "; set --gate-engine HOST:PORT to test on a spare engine of the model"
    return (
        f"updates are not tested on explicit requests, so an update that no longer obeys them goes live. The "
        f"{args.rollout_backend} engine {limitation}{cpu_reason}{remedy}"
    )


def in_words(args: ServingSide) -> str:
    """Returns a sentence that names the gate's engine."""
    return {
        SERVING: f"the {args.rollout_backend} engine that serves",
        CPU: "a separate engine on the CPU",
    }.get(gate_engine_of(args), f"the spare engine {args.gate_engine}")


def why_no_cpu(args: ServingSide) -> str | None:
    """Returns why `auto` does not start an engine on the CPU; None if it does."""
    if (cpus := usable_cpus()) < MIN_CPUS:
        return f"the machine has {cpus} CPUs, fewer than {MIN_CPUS}"
    shape = dense_shape(args.hf_checkpoint)
    if shape is None:
        return "the embedded engine supports only dense models of known types"
    if shape.parameters > MAX_PARAMETERS:
        return f"{shape.parameters / 1e9:.0f} billion parameters would be too slow there (--gate-engine cpu forces it)"
    need, memory = BYTES * shape.parameters, psutil.virtual_memory().total
    if need > HOST_SHARE * memory:
        return f"it would need {need / GIB:.0f} of the {memory / GIB:.0f} GiB of memory (--gate-engine cpu forces it)"
    return None


def dense_shape(folder: str) -> Shape | None:
    """Returns the shape of a model that the embedded engine supports; None for mixtures of experts, linear attention
    and unknown models."""
    try:
        config, _ = read_config(folder)
        if {**config, **(config.get("text_config") or {})}.get("model_type") not in FAMILIES:
            return None
        shape = shape_of(config, folder)
    except ConfigError:
        return None
    return None if shape.experts or shape.linear_attention else shape
