"""Linear attention over packed sequences, without carrying state from one sequence to the next.

A gated delta net (Yang et al. 2024; Qwen3.5) passes a state from token to token, and the convolution before it reads
earlier tokens. transformers treats a row as one sequence, so state and convolution would cross sample boundaries in a
pack. Here each piece of the layout is computed separately, and a branch starts from the state at the end of its
trunk. The functions are those of transformers, which use kernels if flash-linear-attention and causal-conv1d are
installed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.nn.functional import softplus
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeGatedDeltaNet

from slime.errors import ConfigError
from slime.training.core.packing import Layout, pieces_of
from slime.utils.logging import event

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)
NETS = (Qwen3_5GatedDeltaNet, Qwen3_5MoeGatedDeltaNet)
DECAY = ("A_log", "dt_bias")
"""Parameters of a delta net that `decay` uses."""


def keep_sequences_apart(model: PreTrainedModel, folder: str) -> None:
    """Makes the linear attention of a transformers model reset its state at sample boundaries, using
    `packed_layout`.

    Raises:
        ConfigError: the model has recurrent layers of another kind.
    """
    nets = [module for module in model.modules() if isinstance(module, NETS)]
    if getattr(model, "_is_stateful", False) and not nets:
        raise ConfigError(
            f"{folder} is a {model.config.model_type}, whose recurrent layers would carry state "
            "across the samples of a pack; of recurrent models, only qwen3_5 and qwen3_5_moe can "
            "be trained"
        )
    for net in nets:
        net.forward = MethodType(_packed_forward, net)


def keep_exact(model: nn.Module, names: Iterable[str], mesh: DeviceMesh) -> set[nn.Parameter]:
    """Shards the decay parameters among `names` over `mesh`, keeps their dtype, and returns them.

    FSDP would cast them with the other parameters of the layer. Precision matters because errors of a decay
    grow exponentially with the length of a sequence.
    """
    kept = set()
    for name in names:
        module, _, last = name.rpartition(".")
        net = model.get_submodule(module)
        if last in DECAY and isinstance(net, NETS):
            old = getattr(net, last)
            cut = distribute_tensor(old.detach(), mesh, [Shard(0)], src_data_rank=None)
            parameter = nn.Parameter(cut, requires_grad=old.requires_grad)
            setattr(net, last, parameter)
            kept.add(parameter)
    return kept


def _whole(parameter: Tensor) -> Tensor:
    """Returns the full parameter, gathered from all ranks; its gradient is averaged over the ranks, like FSDP's."""
    if not isinstance(parameter, DTensor):
        return parameter
    whole = parameter.full_tensor(grad_placements=[Partial()])
    if whole.requires_grad:
        ranks = parameter.device_mesh.size()
        whole.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]
    return whole


def _packed_forward(
    net: Any, hidden_states: Tensor, packed_layout: Layout | None = None, **others: Any
) -> Tensor:
    """Maps hidden states [1, N, H] to the same shape; without a layout, by the class's own forward."""
    if packed_layout is None:
        plain: Tensor = type(net).forward(net, hidden_states, **others)
        return plain
    qkv, z, b, a = (
        project(hidden_states) for project in (net.in_proj_qkv, net.in_proj_z, net.in_proj_b, net.in_proj_a)
    )
    widths = net.head_k_dim, net.head_v_dim
    kernel = net.conv1d.weight.squeeze(1)
    left = decay(a, *(_whole(getattr(net, name)) for name in DECAY))
    mixed = packed_delta_rule(qkv, b.sigmoid(), left, kernel, widths, packed_layout)
    normed = net.norm(mixed.reshape(-1, net.head_v_dim), z.reshape(-1, net.head_v_dim))
    output: Tensor = net.out_proj(normed.reshape(z.shape))
    return output


def decay(a: Tensor, log: Tensor, bias: Tensor) -> Tensor:
    """Returns the logarithm (at most 0, fp32) of each token's decay factor of the state, [..., heads].

    Args:
        a: [..., heads], projection of the tokens.
        log, bias: [heads], trained parameters.
    """
    return -log.float().exp() * softplus(a.float() + bias)


def packed_delta_rule(
    qkv: Tensor, beta: Tensor, left: Tensor, kernel: Tensor, widths: tuple[int, int], layout: Layout
) -> Tensor:
    """Returns the convolution and gated delta rule of one layer, [1, N, heads, D] in the dtype of `qkv`.

    Args:
        qkv: [1, N, C], the queries of all key heads, their keys, and the values of all heads.
        beta: [1, N, heads], write strength of each token, 0 to 1.
        left: result of `decay`, [1, N, heads].
        kernel: [C, K], weights of the convolution.
        widths: dimensions of one key and of one value.
        layout: pieces of the pack.
    """
    log_kernels()
    pieces, back = pieces_of(layout), kernel.shape[1] - 1
    parts = zip(
        *(torch.split(x, [one.length for one in pieces], dim=1) for x in (qkv, beta, left)), strict=True
    )
    outputs, ends = [], list[tuple[Tensor, Tensor | None]]()
    for number, (piece, part) in enumerate(zip(pieces, parts, strict=True)):
        seen, state = ends[piece.path[-1]] if piece.path else (None, None)
        output, after = _piece(part, kernel, widths, seen, state, keep=piece.until > number + 1)
        outputs.append(output)
        row = part[0] if seen is None else torch.cat([seen, part[0]], dim=1)
        ends.append((row[:, max(row.shape[1] - back, 0) :], after))
    return torch.cat(outputs, dim=1)


@lru_cache(maxsize=1)
def log_kernels() -> None:
    """Logs once which packages compute the convolution and the delta rule."""
    rule = modeling_qwen3_5.torch_chunk_gated_delta_rule
    computes = {"delta_rule": rule, "convolution": modeling_qwen3_5.causal_conv1d_fn}
    event(logger, "linear attention", **{name: kernel_of(function) for name, function in computes.items()})


def kernel_of(function: Callable[..., Any]) -> str:
    """Returns the package whose kernel a function of transformers runs; "torch" if none can be imported."""
    if not inspect.isfunction(function):
        return type(function).__module__.partition(".")[0]
    known = inspect.getclosurevars(function).nonlocals
    taken = known.get("implementation")
    return taken.__module__.partition(".")[0] if known.get("is_new_implementation") and taken else "torch"


def _piece(
    inputs: tuple[Tensor, ...],
    kernel: Tensor,
    widths: tuple[int, int],
    seen: Tensor | None = None,
    state: Tensor | None = None,
    keep: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Computes n tokens after the tokens `seen`, from the state `state`: [1, n, heads, D], and the final
    state if `keep`."""
    qkv, beta, left = inputs
    behind = 0 if seen is None else seen.shape[1]
    row = (qkv if seen is None else torch.cat([seen, qkv], dim=1)).transpose(1, 2)
    mixed = modeling_qwen3_5.causal_conv1d_fn(row, kernel, None, activation="silu")[:, :, behind:].transpose(
        1, 2
    )
    key, value = widths
    values = beta.shape[-1] * value
    keys = (mixed.shape[-1] - values) // 2
    parts = torch.split(mixed, [keys, keys, values], dim=-1)
    q, k, v = (x.reshape(1, x.shape[1], -1, width) for x, width in zip(parts, (key, key, value), strict=True))
    output, last = modeling_qwen3_5.torch_chunk_gated_delta_rule(
        q, k, v, g=left, beta=beta, initial_state=state, output_final_state=keep, use_qk_l2norm_in_kernel=True
    )
    return output, last
