"""A tiny Llama in a GGUF file, as written by llama.cpp's converter."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "1 2", "Ġ hello")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
HEADS, KV_HEADS, HIDDEN = 4, 2, 64
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def write_gguf(file: Path, pre: str = "smollm", template: str | None = TEMPLATE) -> LlamaForCausalLM:
    """Writes a random Llama of a few thousand parameters, quantized to 8 bits; returns the equivalent model."""
    torch.manual_seed(3)
    known = words()
    config = LlamaConfig(
        vocab_size=len(known), hidden_size=HIDDEN, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, max_position_embeddings=256,
        initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(128)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(known))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(known)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(known) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    for name, weight in model.model.named_parameters():
        add(writer, name, weight.detach())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def words() -> list[str]:
    """Returns all bytes in GPT-2's form, the merged tokens, and the special tokens in front."""
    alphabet = sorted(ByteLevel.alphabet())
    return [*SPECIAL, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def rope_order(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Converts to llama.cpp's order, in which the two halves of a head's rotation are interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def add(writer: gguf.GGUFWriter, name: str, weight: torch.Tensor) -> None:
    """Adds the weight in 8 bits (norms in 32) under llama.cpp's name; sets the model's weight to the quantized
    values."""
    outer = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    if name in outer:
        called = outer[name]
    else:
        _, layer, inner = name.removesuffix(".weight").split(".", 2)
        called = f"blk.{layer}.{NAMES[inner]}.weight"
    if weight.dim() == 1:
        writer.add_tensor(called, weight.numpy())
        return
    packed = gguf.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q8_0)
    weight.copy_(torch.from_numpy(gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)))
    for part, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
        if part in name:
            packed = gguf.quantize(rope_order(weight, heads).numpy(), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor(called, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
