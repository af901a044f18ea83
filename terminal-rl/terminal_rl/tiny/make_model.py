"""Makes the tiny model of this track from nothing: `python -m terminal_rl.tiny.make_model OUT`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from slime.agents.tiny import Recipe, make_checkpoint
from terminal_rl.tiny.demonstrations import CALL, demonstration

RECIPE = Recipe(
    vocabulary=512, hidden=64, layers=3, context=512, steps=600, batch_tokens=2400, corpus=2000, phrases=CALL
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m terminal_rl.tiny.make_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    make_checkpoint(args.out, demonstration, RECIPE, args.seed)


if __name__ == "__main__":
    main()
