"""Creates the inputs of the arithmetic examples: a tiny untrained model with its tokenizer, and data.

    python slime/examples/arithmetic/make.py runs/arithmetic

writes model/ (a random Qwen3 of some 100,000 parameters, byte-level tokenizer), prompts.jsonl (all sums of two digits
up to 9, with their answers) and conversations.jsonl (the same sums, three of four answers right).
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

END, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONVERSATIONS = 4000


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Returns a tokenizer with one id for each byte, control token and role."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, normalized=False) for token in (END, TURN_START, TURN_END)])
    core.add_tokens([AddedToken(role, normalized=False) for role in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END,
        model_max_length=256,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def random_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def sums() -> list[tuple[str, int]]:
    return [(f"{a}+{b}=", a + b) for a in range(10) for b in range(10 - a)]


def conversations(rng: random.Random) -> list[dict[str, object]]:
    """Returns sums and answers in random order; every fourth answer is wrong by one to three."""
    rows: list[dict[str, object]] = []
    for number, (question, right) in enumerate(rng.choices(sums(), k=CONVERSATIONS)):
        answer = right if number % 4 else abs(right + rng.choice((-3, -2, -1, 1, 2, 3)))
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": str(answer)}]
        rows.append({"messages": messages})
    return rows


def write_lines(file: Path, rows: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(args.folder / "model")
    random_model(tokenizer, args.seed).save_pretrained(args.folder / "model")
    write_lines(args.folder / "prompts.jsonl", [{"prompt": q, "label": str(a)} for q, a in sums()])
    write_lines(args.folder / "conversations.jsonl", conversations(random.Random(args.seed)))


if __name__ == "__main__":
    main()
