"""A model folder without weights, which suffices for a gateway."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CORPUS = (
    "hello there, how are you today? the answer is 42.",
    'user assistant system tool {"name": "read", "arguments": {"path": "a.txt"}}',
    "ünïcödé 你好 🦀 and newlines\n\nare here",
)


def build_model(folder: Path, context: int = 2048) -> Path:
    """Writes a Qwen3 folder without weights: config and a byte-level BPE of a few hundred tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(CORPUS * 20, trainer)
    core.add_tokens([AddedToken(token, normalized=False, special=False) for token in MARKUP])
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    config = {"model_type": "qwen3", "max_position_embeddings": context}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.7}))
    return folder
