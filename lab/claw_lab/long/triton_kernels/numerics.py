"""Compares flash-linear-attention's gated delta rule, with kernels interpreted on the CPU, with transformers' torch
code in fp32: output and gradients of a pack with a shared prompt. Triton's interpreter cannot multiply bf16; fp16
rounds as well.

TRITON_INTERPRET=1 python -m claw_lab.long.triton_kernels.numerics   (exit status 1 beyond a bound)
"""

from __future__ import annotations

import ast
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton.runtime.interpreter import ASTTransformer

from claw_lab.long.triton_kernels.hopper import stand_in

LAYOUT = ((70, 30, 20), (65,), (1,))
HEADS, WIDTH = (1, 2), 128
BOUNDS = {torch.float32: 1e-5, torch.float16: 4e-3}
"""Bounds of a tensor's distance from the reference, relative to its norm."""
NAMES = ("output", "qkv", "beta", "left", "kernel")


def main() -> int:
    for_kernels()
    from transformers.models.qwen3_5 import modeling_qwen3_5

    rule = modeling_qwen3_5.torch_chunk_gated_delta_rule
    wrong = 0
    for dtype, bound in BOUNDS.items():
        began, inputs = time.monotonic(), random_inputs(dtype)
        output = by(rule, inputs)
        expected = by(inspect.unwrap(rule), [x.float() for x in inputs])
        gaps = [float((a.float() - b).norm() / b.norm()) for a, b in zip(output, expected, strict=True)]
        seconds = time.monotonic() - began
        print(
            dtype, *(f"{name} {gap:.1e}" for name, gap in zip(NAMES, gaps, strict=True)), f"{seconds:.0f} s"
        )
        wrong += sum(not gap <= bound for gap in gaps)
    return int(wrong > 0)


def for_kernels() -> None:
    """Changes the interpreter: it takes the first configuration of each autotuner, and treats loop counters as
    tensors, as compilers do."""
    driver = stand_in()
    driver.get_benchmarker = lambda: lambda call, quantiles=None: [1.0] * 3  # type: ignore[method-assign]
    ASTTransformer.visit_For = _count_in_tensors


def _count_in_tensors(transformer: ASTTransformer, loop: ast.For) -> ast.For:
    transformer.generic_visit(loop)
    if ast.unparse(loop.iter).startswith("range(") and isinstance(loop.target, ast.Name):
        name = loop.target.id
        loop.body[:0] = ast.parse(f"{name} = interpreter_semantic.to_tensor({name}, False)").body
    return loop


def random_inputs(dtype: torch.dtype) -> list[Tensor]:
    """Returns the inputs of `packed_delta_rule`: qkv, beta, left, kernel."""
    torch.manual_seed(0)
    (keys, heads), tokens = HEADS, sum(sum(run) for run in LAYOUT)
    channels = (2 * keys + heads) * WIDTH
    qkv, beta, left = (
        torch.randn(1, tokens, channels),
        torch.rand(1, tokens, heads),
        -torch.rand(1, tokens, heads),
    )
    return [qkv.to(dtype), beta.to(dtype), left, torch.randn(channels, 4).div(2).to(dtype)]


def by(rule: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor]:
    """Returns the output of a pack and the gradients of all inputs."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    from slime.training.attention.linear import packed_delta_rule

    modeling_qwen3_5.torch_chunk_gated_delta_rule = rule
    qkv, beta, left, kernel = inputs = [x.clone().requires_grad_() for x in tensors]
    output = packed_delta_rule(qkv, beta, left, kernel, (WIDTH, WIDTH), LAYOUT)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
    (output * weights).sum().backward()
    return [output.detach(), *(x.grad for x in inputs if x.grad is not None)]


if __name__ == "__main__":
    sys.exit(main())
