"""A random Qwen3 of a few thousand parameters with a tokenizer, and plain Hugging Face as the reference."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 320
EOS = 3


def save_model(folder: Path, seed: int, tie: bool = True) -> Path:
    """Writes a random Qwen3 (hidden 32, 2 layers) whose logits vary enough for meaningful sampling."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tie,
        max_position_embeddings=4096,
        eos_token_id=EOS,
        initializer_range=0.3,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=EOS, do_sample=True)
    model.save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return folder


def _tokenizer() -> Any:
    """Returns a byte-level tokenizer: id 4 + i is a byte, higher ids are pairs of letters."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {name: i for i, name in enumerate(["<pad>", "<unk>", "<bos>", "<eos>", *letters])}
    merges = [(a, b) for a in "abcdefgh" for b in "ijklmnop"][: VOCABULARY - len(vocabulary)]
    for a, b in merges:
        vocabulary[a + b] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<pad>", "<unk>", "<bos>", "<eos>")])
    return tokenizer


_loading = threading.Lock()
"""`from_pretrained` disables tying for the process while it loads; two concurrent loads would leave it disabled."""


def plain_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    with _loading:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
