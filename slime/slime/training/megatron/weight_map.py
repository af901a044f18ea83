"""Maps megatron-core's parameters to names in a Hugging Face folder and to their division over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from slime.training.megatron.delta_net import projected
from slime.training.megatron.fused_rows import Sections
from slime.utils.decoders import body
from slime.weights.checksum import LM_HEAD

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Kind = Literal["plain", "qkv", "gate_up", "sections", "vocabulary", "experts", "adapter", "value"]


@dataclass(frozen=True)
class Entry:
    """The sources of one megatron-core parameter.

    Attributes:
        sources: Hugging Face's names, ordered by expert.
        kind: how they are joined to one tensor.
        dim: dimension that is divided over ranks; None: whole on every rank. The ranks are tensor-parallel,
            or expert-parallel if `kind` is "experts".
        partial: each rank has the whole parameter, but computes only a part of its gradient.
        sections: row sections, if each rank has a part of every one.
    """

    sources: tuple[str, ...]
    kind: Kind = "plain"
    dim: int | None = None
    partial: bool = False
    sections: Sections = ()


_LAYER = {
    "input_layernorm.weight": (("input_layernorm.weight",), "plain", None, False),
    "self_attention.linear_qkv.weight": (
        tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
        "qkv",
        0,
        False,
    ),
    "self_attention.linear_qkv.bias": (tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), "qkv", 0, False),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm.weight",), "plain", None, True),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm.weight",), "plain", None, True),
    "self_attention.linear_proj.weight": (("self_attn.o_proj.weight",), "plain", 1, False),
    "self_attention.in_proj.weight": (
        tuple(f"linear_attn.in_proj_{x}.weight" for x in ("qkv", "z", "b", "a")),
        "sections",
        0,
        False,
    ),
    "self_attention.core_attention.kernel": (("linear_attn.conv1d.weight",), "sections", 0, False),
    "self_attention.core_attention.A_log": (("linear_attn.A_log",), "plain", 0, False),
    "self_attention.core_attention.dt_bias": (("linear_attn.dt_bias",), "plain", 0, False),
    "self_attention.norm.weight": (("linear_attn.norm.weight",), "plain", None, True),
    "self_attention.out_proj.weight": (("linear_attn.out_proj.weight",), "plain", 1, False),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm.weight",), "plain", None, False),
    "mlp.linear_fc1.weight": (("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gate_up", 0, False),
    "mlp.linear_fc2.weight": (("mlp.down_proj.weight",), "plain", 1, False),
    "mlp.router.weight": (("mlp.gate.weight",), "plain", None, True),
    "mlp.experts.gate_up": (
        ("mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight"),
        "experts",
        0,
        False,
    ),
    "mlp.experts.down": (("mlp.experts.{}.down_proj.weight",), "experts", 0, False),
    "mlp.shared.mlp.linear_fc1.weight": (
        ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
        "gate_up",
        0,
        False,
    ),
    "mlp.shared.mlp.linear_fc2.weight": (("mlp.shared_expert.down_proj.weight",), "plain", 1, False),
    "mlp.shared.gate": (("mlp.shared_expert_gate.weight",), "plain", None, False),
}
HEAD = "output_layer.weight"


def entry_of(name: str, hf: PretrainedConfig, offset: int) -> Entry:
    """Returns the entry of a parameter of a stage; `offset` is the model-wide number of the stage's first
    layer."""
    _, layer, rest = split_name(name)
    if layer is None:
        return _outside(name, hf)
    sources, kind, dim, partial = _LAYER[rest]
    if kind == "experts":
        sources = tuple(source.format(i) for i in range(hf.num_experts) for source in sources)
    sections: Sections = ()
    if kind == "sections":
        sections = projected(hf)[: len(sources)]
    named = tuple(f"{body(hf)}layers.{layer + offset}.{source}" for source in sources)
    return Entry(named, kind, dim, partial, sections)  # type: ignore[arg-type]


def _outside(name: str, hf: PretrainedConfig) -> Entry:
    if name == "decoder.final_layernorm.weight":
        return Entry((f"{body(hf)}norm.weight",))
    head = name == HEAD and not hf.tie_word_embeddings
    return Entry((LM_HEAD if head else f"{body(hf)}embed_tokens.weight",), "vocabulary", 0)


def split_name(name: str) -> tuple[str, int | None, str]:
    """Splits a layer's parameter into ("decoder.layers.", 3, "mlp..."); other names give (name, None, "")."""
    head = "decoder.layers."
    if not name.startswith(head):
        return name, None, ""
    number, rest = name.removeprefix(head).split(".", 1)
    return head, int(number), rest
