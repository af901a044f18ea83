"""Trains the classifier of custom_rm.py from scratch to detect whether a response agrees with the next state.

    python slime/examples/my_method/reward_model.py runs/arithmetic/reward_model

In the arithmetic example the label is the next state, so it has to learn whether two short texts are the same.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "arithmetic"))
from make import byte_tokenizer, sums

STEPS, BATCH = 400, 64


def examples(rng: random.Random) -> list[tuple[str, int]]:
    """Returns texts in the format of custom_rm.py, and whether the response is right."""
    rows = []
    for _ in range(BATCH):
        question, right = rng.choice(sums())
        agrees = rng.random() < 0.5
        answer = right if agrees else (right + rng.randint(1, 9)) % 10
        prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        rows.append((f"{prompt}\n{answer}\n{right}", int(agrees)))
    return rows


def classifier(tokenizer: Any) -> Qwen3ForSequenceClassification:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "head_dim": 16,
    }
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    config = Qwen3Config(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, num_labels=2, **shape
    )
    return Qwen3ForSequenceClassification(config)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    tokenizer, rng = byte_tokenizer(), random.Random(0)
    model = classifier(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    right = 0.0
    for _ in range(STEPS):
        texts, labels = zip(*examples(rng), strict=True)
        inputs = tokenizer(list(texts), return_tensors="pt", padding=True)
        target = torch.tensor(labels)
        output = model(**inputs, labels=target)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        right = 0.95 * right + 0.05 * float((output.logits.argmax(-1) == target).float().mean())
    print(f"the classifier is right about {right:.0%} of pairs")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
