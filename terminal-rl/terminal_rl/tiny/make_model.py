"""Makes the tiny model of this track from nothing: `python -m terminal_rl.tiny.make_model OUT`.

Twice: first it learns how calls are written and to copy names, with commands that are drawn at random; then, for a short
time, from demonstrations in which the command fits a little more often than that.
"""

from __future__ import annotations

import argparse
import logging
import random
from functools import partial
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from slime.agents.tiny import Recipe, make_checkpoint
from slime.agents.tiny.dialogue import encode
from slime.agents.tiny.recipe import batches, new_optimizers, save, train_step
from slime.rollout.tokenizer import ChatTokenizer
from terminal_rl.tiny.demonstrations import FITTING, demonstration

FORMAT = Recipe(hidden=64, layers=3, steps=700, batch_tokens=2400, corpus=2000)
HINT = Recipe(steps=220, batch_tokens=2400, rate=3e-3)


def give_hint(folder: Path, seed: int) -> None:
    """Goes on with the model in `folder`, at a lower rate."""
    torch.manual_seed(seed)
    tokenizer = ChatTokenizer(str(folder))
    model = Qwen3ForCausalLM.from_pretrained(folder)
    rng = random.Random(seed + 7)
    draw = partial(demonstration, rng, FITTING)
    stream = batches(lambda: encode(tokenizer, draw(), HINT.background), rng, HINT.batch_tokens)
    optimizers = new_optimizers(model)
    for step in range(HINT.steps):
        loss = train_step(model, optimizers, next(stream), HINT.rate_at(step), HINT.batch_tokens)
    logging.info("step %d  loss %.4f", HINT.steps, loss)
    save(model, tokenizer, folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m terminal_rl.tiny.make_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    make_checkpoint(args.out, partial(demonstration, fitting=0.0), FORMAT, args.seed)
    give_hint(args.out, args.seed)


if __name__ == "__main__":
    main()
