"""Compiles for an H100 all Triton kernels that a step of Qwen3.5's linear attention launches, with all configurations
of their autotuners. Exit status 1 if a kernel would end training, if none fits, if transformers uses no kernels, or
if an autotuner may reuse for one launch the choice of another that does not fit there.

python -m claw_lab.long.triton_kernels [bf16|fp32]
"""

from __future__ import annotations

import importlib.metadata
import resource
import sys
from collections.abc import Collection, Iterable
from itertools import groupby

import torch
from transformers import Qwen3_5TextConfig

from claw_lab.long.triton_kernels.hopper import SHARED, Compiled, Hopper, stand_in

LAYOUT = ((100, 30, 20), (61,), (1,))
"""A prompt with two answers, which continue its state; one sample; one token."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROW = "{:46} {:>8} {:>10} {:>9} {:>8} {:>17} {:>9}"


def main(dtype: str = "bf16") -> int:
    packages = "triton", "flash-linear-attention", "torch"
    print(dtype, *(f"{name} {importlib.metadata.version(name)}" for name in packages))
    hopper, began, error = stand_in(), processor_seconds(), None
    try:
        hopper.sees(lambda: step(DTYPES[dtype]))
    except Exception as left:  # the report contains the error that Triton raises if no configuration is left
        error = left
    tell(hopper)
    print(f"{processor_seconds() - began:.0f} s of processor time")
    traps = sorted({(one.kernel, one.candidate) for one in trapped(hopper.compiled.values())})
    for kernel, candidate in traps:
        print(f"fits some launches that share a choice, not all: {kernel} {candidate}")
    if error is not None:
        print(f"wrong: {error!r}"[:2000])
    return int(error is not None or bool(traps) or any(failed.ends for failed in hopper.failed))


def step(dtype: torch.dtype) -> None:
    """Runs one layer of Qwen3.5-4B, forward and backward, as both training backends call it."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    from slime.training.attention.linear import kernel_of, packed_delta_rule

    rule = kernel_of(modeling_qwen3_5.torch_chunk_gated_delta_rule)
    if rule != "fla":
        raise RuntimeError(
            f"transformers computes the delta rule by {rule}: flash-linear-attention is not used"
        )
    config, tokens = Qwen3_5TextConfig(), sum(sum(run) for run in LAYOUT)
    heads, widths = config.linear_num_value_heads, (config.linear_key_head_dim, config.linear_value_head_dim)
    channels = 2 * config.linear_num_key_heads * widths[0] + heads * widths[1]
    qkv, beta, left, kernel = (
        torch.rand(shape, dtype=kind).requires_grad_()
        for shape, kind in (
            ((1, tokens, channels), dtype),
            ((1, tokens, heads), dtype),
            ((1, tokens, heads), torch.float32),
            ((channels, config.linear_conv_kernel_dim), dtype),
        )
    )
    packed_delta_rule(qkv, beta, -left, kernel, widths, LAYOUT).float().sum().backward()


def tell(hopper: Hopper) -> None:
    print(
        ROW.format("kernel", "variants", "candidates", "too large", "spilling", "shared (bytes)", "registers")
    )
    every = sorted(hopper.compiled.values(), key=lambda one: one.kernel)
    for kernel, group in groupby(every, key=lambda one: one.kernel):
        print(row(kernel, list(group)))
    print(row("all", every))
    for failed in hopper.failed:
        print(
            f"{'ends training' if failed.ends else 'skipped'}: {failed.kernel} {failed.candidate}: {failed.error}"
        )


def row(name: str, some: list[Compiled]) -> str:
    shared = [one.shared for one in some] or [0]
    return ROW.format(
        name,
        len({(one.kernel, one.variant) for one in some}),
        len(some),
        count(one.shared > SHARED for one in some),
        count(one.spilled > 0 for one in some),
        f"{min(shared)} - {max(shared)}",
        max((one.registers for one in some), default=0),
    )


def trapped(some: Collection[Compiled]) -> list[Compiled]:
    """Returns configurations that do not fit, while the same one fits another launch with the same autotuner key."""
    fits = {(one.kernel, one.key, one.candidate) for one in some if one.shared <= SHARED}
    return [one for one in some if one.shared > SHARED and (one.kernel, one.key, one.candidate) in fits]


def processor_seconds() -> float:
    """Returns the processor time of this process and of its ptxas."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def count(facts: Iterable[bool]) -> int:
    return sum(facts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
