"""A small byte-level BPE with Qwen3's special tokens and chat template.

Digits and line ends are always single tokens. The constant part of every prompt, the system message with its tools,
is one token: a model of this size does not use its content, and it would dominate the cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from slime.agents.protocol import Start

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
PIECES = r"\d|\n| ?\p{L}+| ?[^\s\p{L}\d]+|[^\S\n]+"
TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text()
SEEING_TEMPLATE = Path(__file__).with_name("pictures.jinja").read_text() + TEMPLATE
"""Template of vision models; it renders text as `TEMPLATE` does."""


def system_text(start: Start) -> str:
    """Returns the system message that the template makes of a start; "" if it makes none."""
    tools = [tool.spec() for tool in start.tools] or None
    [text], _ = render_jinja_template([start.messages], tools, chat_template=SEEING_TEMPLATE)
    begin, end = f"{TURN_START}system\n", TURN_END
    return str(text).removeprefix(begin).partition(end)[0] if str(text).startswith(begin) else ""


def train_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    phrases: Sequence[str] = (),
    context: int = 2048,
    template: str = TEMPLATE,
) -> PreTrainedTokenizerFast:
    """Trains the merges on `texts`.

    Args:
        vocabulary: number of tokens, including the 256 bytes.
        phrases: texts that are one token each; if several match, the longest.
    """
    added = [*MARKUP, *phrases]
    longest_first = sorted(added, key=len, reverse=True)
    spoken = (_without(text, longest_first) for text in texts)
    return train_byte_bpe(spoken, vocabulary, PIECES, added, template, context)


def train_byte_bpe(
    texts: Iterable[str], vocabulary: int, pieces: str, added: Sequence[str], template: str, context: int
) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE with Qwen3's special tokens; the same texts give the same bytes.

    Args:
        vocabulary: number of tokens, including the 256 bytes.
        pieces: regular expression of the longest possible tokens.
        added: texts that are one token each, after the merges; `texts` do not contain them.
        context: tokens.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(added),
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.add_tokens([AddedToken(text, normalized=False, special=False) for text in added])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


def _without(text: str, words: Sequence[str]) -> str:
    for word in words:
        text = text.replace(word, "\n")
    return text
