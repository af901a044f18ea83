"""The layers of a Hugging Face model that --fused-layers computes by one kernel each."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm

from slime.training.core.fused import compiled_swiglu, fuses_activations, fuses_norms, rms_norm

if TYPE_CHECKING:
    from slime.flags.sides import TrainingSide

NORMS = (LlamaRMSNorm, Qwen2RMSNorm, Qwen2MoeRMSNorm, Qwen3RMSNorm, Qwen3MoeRMSNorm)
GATED = (LlamaMLP, Qwen2MLP, Qwen3MLP)


def fuse(model: nn.Module, args: TrainingSide) -> None:
    """Gives norms and feed-forward networks of known kinds their fused forward, in place; others stay as they are."""
    for module in model.modules():
        if isinstance(module, NORMS) and fuses_norms(args):
            module.forward = MethodType(_norm, module)
        if isinstance(module, GATED) and fuses_activations(args) and module.config.hidden_act == "silu":
            module.forward = MethodType(_feed_forward, module)


def _norm(module: Any, hidden_states: Tensor) -> Tensor:
    return rms_norm(hidden_states, module.weight, module.variance_epsilon)


def _feed_forward(module: Any, x: Tensor) -> Tensor:
    output: Tensor = module.down_proj(compiled_swiglu()(module.gate_proj(x), module.up_proj(x)))
    return output
