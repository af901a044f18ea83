"""tiny-claw's tokenizer: byte-level BPE, single digits and newlines, Qwen3's special tokens and chat format.

A newline is always a single token, so a text split at newlines has the same ids in parts as in one, and the parts of
a chat template never merge with a person's text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from claw_lab.tiny_models.tokenizer import END_OF_TEXT, TURN_END, TURN_START, train_byte_bpe
from tiny_claw.corpora import docstrings, random_tool
from tiny_claw.dialogues import conversation

VOCABULARY = 2048
CONTEXT = 65536
CONTROL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
EMPTY_THINKING = "<think>\n\n</think>\n\n"
PIECES = r"\d|\n| ?[\p{L}\p{M}]+| ?[^\s\p{L}\p{M}\d]+|[^\S\n]+(?!\S)|[^\S\n]+"
TEMPLATE_FILE = Path(__file__).with_name("chat_template.jinja")


def train_tokenizer(dialogues: int = 6000, seed: int = 1) -> PreTrainedTokenizerFast:
    """Trains the vocabulary on dialogues, English and JSON (all from code and the standard library)."""
    corpus, template = _corpus(random.Random(seed), dialogues), TEMPLATE_FILE.read_text()
    return train_byte_bpe(corpus, VOCABULARY, PIECES, MARKUP_TOKENS, template, CONTEXT)


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(str(folder))


def _corpus(rng: random.Random, dialogues: int) -> Iterator[str]:
    for _ in range(dialogues):
        for message in conversation(rng).messages:
            yield _without_markup(f"{message['role']}\n{message['content']}")
    for _ in range(1500):
        yield json.dumps(random_tool(rng))
    for _ in range(3):
        yield from docstrings()


def _without_markup(text: str) -> str:
    for token in MARKUP_TOKENS:
        text = text.replace(token, "")
    return text
