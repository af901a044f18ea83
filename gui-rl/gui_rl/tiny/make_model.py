"""Makes the tiny model of this track from nothing: `python -m gui_rl.tiny.make_model OUT`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from gui_rl.tiny.demonstrations import demonstration
from slime.agents.tiny import Recipe, make_checkpoint

RECIPE = Recipe(vocabulary=640, context=1024, steps=900, batch_tokens=1500, corpus=1500)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gui_rl.tiny.make_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    make_checkpoint(args.out, demonstration, RECIPE, args.seed)


if __name__ == "__main__":
    main()
