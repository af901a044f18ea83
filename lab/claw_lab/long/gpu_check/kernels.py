"""Measures time and memory of attention: kernels, lengths, masks; and the peak rate of matrix products."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from claw_lab.long.gpu_check.bench import EPSILON, GIB, Bench, refuse
from slime.training.attention.kernels import KERNELS, block_mask, packed_attention, takes_varlen
from slime.training.core.fused import compiled_swiglu, rms_norm, swiglu
from slime.training.core.packing import pieces_of

PACKAGES = ("torch", "transformers", "peft", "triton", "megatron-core", "bitsandbytes", "flash-attn")
LAYOUT = ((100, 30, (20, 15, 25)), (61,), (200,), (130,))
PACKED_BOUND = 8 * EPSILON
"""Inputs, scores, probabilities and sums are rounded, forward and backward: a dozen roundings that partly cancel."""
FUSED_BOUND = 4 * EPSILON
"""Bound of an element, in whose computation four numbers are rounded: twice the largest sum of these errors."""


def about(bench: Bench) -> None:
    """Reports versions, the device, and operations per second of a large product in bf16."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    device = (
        {} if bench.tiny else {"gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
    )
    bench.report("about", **versions, **device, cores=os.cpu_count(), tflops=bench.peak / 1e12)


def sdpa(bench: Bench) -> None:
    """Measures torch's attention for a new length: with its default choice, with cuDNN, with FlashAttention."""
    longest, heads, kv, width = (64, 4, 2, 16) if bench.tiny else (8192, 32, 8, 128)

    def once(length: int, pack: int) -> None:
        whole = [
            torch.randn(1, pack, n, width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
            for n in (heads, kv, kv)
        ]
        q, k, v = (x.transpose(1, 2)[:, :, :length] for x in whole)
        scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum().backward()

    lengths = [longest - 7 * i for i in range(2 if bench.tiny else 40)]
    kernels = {"default": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for name, kernel in kernels.items():
        torch.backends.cuda.enable_cudnn_sdp(name != "flash")
        bench.fresh()
        with torch.enable_grad() if kernel is None or bench.tiny else sdpa_kernel(kernel):
            bench.timed(lambda: once(longest, longest))
            new = [bench.timed(lambda n=n: once(n, longest))[0] for n in lengths]  # type: ignore[misc]
            again = [bench.timed(lambda n=n: once(n, longest))[0] for n in lengths]  # type: ignore[misc]
        bench.report(
            "sdpa",
            kernel=name,
            new_ms=1e3 * sum(new) / len(new),
            again_ms=1e3 * sum(again) / len(again),
        )
    torch.backends.cuda.enable_cudnn_sdp(False)


def packed(bench: Bench) -> None:
    """Compares all kernels on a pack with shared prompts with a loop over sequences in fp32: outputs and gradients.

    Raises Wrong if a kernel fails, or the output or gradients of a token differ by more than `PACKED_BOUND`.
    """
    torch.manual_seed(0)
    total = sum(piece.length for piece in pieces_of(LAYOUT))
    wide = [torch.randn(1, heads, total, 64) for heads in (8, 2, 2)]
    wrong = list[str]()
    for name, kernel in KERNELS.items():
        for window in (None, 50):
            expected = _run(packed_attention, wide, window)
            try:
                output = _run(kernel, [x.to(bench.device, torch.bfloat16) for x in wide], window)
            except Exception as error:  # the report names all kernels that fail
                bench.report("packed", kernel=name, window=window, error=_first(error))
                wrong += [] if _is_absent(bench, name) else [f"{name}: {_first(error)}"]
                continue
            tokens = 1, 2, 2, 2  # the dimension of tokens, in the output and in the gradients
            parts = zip(output, expected, tokens, strict=True)
            gaps = [token_gap(a.float().cpu().transpose(1, n), b.transpose(1, n)) for a, b, n in parts]
            bench.report("packed", kernel=name, window=window, output=gaps[0], gradients=max(gaps[1:]))
            wrong += [] if max(gaps) <= PACKED_BOUND else [f"{name} with window {window}: {max(gaps):.4f}"]
    refuse(wrong, PACKED_BOUND)
    chosen = takes_varlen(bench.device, torch.bfloat16, 64)
    bench.report("packed.auto", takes="varlen" if chosen else "sdpa")


def token_gap(vectors: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns for vectors [1, N, ...] the largest distance of a token's vector from the expected one, relative to its
    length or, if that is larger, to their mean length."""
    gap, length = ((x.flatten(2).norm(dim=-1)) for x in (vectors - expected, expected))
    return float((gap / length.clamp(min=float(length.mean()))).max())


def _is_absent(bench: Bench, kernel: str) -> bool:
    """Returns whether a kernel may be missing: FlashAttention's own package is optional, and a CPU has only torch's
    loop."""
    if bench.tiny:
        return kernel not in ("auto", "sdpa")
    return kernel == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None


def _run(kernel: Any, tensors: list[torch.Tensor], window: int | None = None) -> list[torch.Tensor]:
    inputs = [x.detach().clone().requires_grad_() for x in tensors]
    how = {"packed_layout": LAYOUT, "sliding_window": window}
    output = kernel(torch.nn.Module(), *inputs, None, **how)[0]
    weights = torch.linspace(-1, 1, output.numel(), device=output.device).view(output.shape)
    (output.float() * weights).sum().backward()
    return [output.detach(), *(x.grad for x in inputs if x.grad is not None)]


def speed(bench: Bench) -> None:
    """Measures the seconds of one pack of a layer, forward and backward, for each kernel."""
    layout = ((40, 10, 14), (30,)) if bench.tiny else (*((2048, 1024, 1024),) * 4, *((1024,),) * 16)
    total, (heads, kv, width) = sum(sum(run) for run in layout), (4, 2, 16) if bench.tiny else (32, 8, 128)
    wrong = list[str]()
    for name, kernel in KERNELS.items():
        q, k, v = (
            torch.randn(1, n, total, width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
            for n in (heads, kv, kv)
        )

        def once(kernel: Any = kernel, inputs_of_call: Any = (q, k, v)) -> None:
            kernel(torch.nn.Module(), *inputs_of_call, None, packed_layout=layout)[0].sum().backward()

        bench.fresh()
        try:
            first, _ = bench.timed(once)
            seconds, _ = bench.timed(once, 1 if bench.tiny else 10)
        except Exception as error:
            bench.report("speed", kernel=name, error=_first(error))
            wrong += [] if _is_absent(bench, name) else [f"{name}: {_first(error)}"]
            continue
        bench.report(
            "speed", kernel=name, tokens=total, first_s=first, ms=1e3 * seconds, most_gib=bench.most()
        )
    refuse(wrong)


def fused(bench: Bench) -> None:
    """Measures norm and gated activation, in plain operations and as one kernel: milliseconds forward and backward,
    and the difference to fp32, relative for numbers above 1. Raises Wrong if that is above `FUSED_BOUND`."""
    tokens, width = (64, 64) if bench.tiny else (32768, 9728)
    x, y = (
        torch.randn(tokens, width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(2)
    )
    norm = Qwen3RMSNorm(width).to(bench.device, torch.bfloat16)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "norm plain": lambda: norm(x),
        "norm fused": lambda: rms_norm(x, norm.weight, norm.variance_epsilon),
        "swiglu plain": lambda: swiglu(x, y),
        "swiglu fused": lambda: compiled_swiglu()(x, y),
    }
    wide = x.detach().float(), y.detach().float()
    exact = {"norm": norm.float()(wide[0]).detach(), "swiglu": swiglu(*wide)}
    norm.bfloat16()
    wrong = list[str]()
    with torch.compiler.set_stance("force_eager" if bench.tiny else "default"):
        for name, compute in ways.items():
            right = exact[name.split()[0]]
            gap = float(((compute().detach().float() - right).abs() / right.abs().clamp(min=1)).max())
            wrong += [] if gap <= FUSED_BOUND else [f"{name}: {gap:.4f}"]
            bench.timed(lambda compute=compute: compute().sum().backward())  # type: ignore[misc]
            seconds, _ = bench.timed(lambda compute=compute: compute().sum().backward(), 10)  # type: ignore[misc]
            bench.report("fused", of=name, ms=1e3 * seconds, gap=gap)
    refuse(wrong, FUSED_BOUND)


def flex_mask(bench: Bench) -> None:
    """Measures memory and seconds of the mask of the largest pack."""
    layout = ((512,), (1000, 24)) if bench.tiny else ((8192, 2000, 1096), (21480,))
    bench.fresh()
    before = 0 if bench.tiny else torch.cuda.memory_allocated()
    seconds, _ = bench.timed(lambda: block_mask(layout, None, bench.device))
    most = bench.most()
    more = None if most is None else most - before / GIB
    bench.report("flex_mask", tokens=sum(sum(run) for run in layout), seconds=seconds, more_gib=more)


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
