"""Makes the tiny model of this track from nothing: `python -m toolcall_rl.tiny.make_model runs/tiny-toolcall-model`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from slime.agents.tiny import Recipe, make_checkpoint
from toolcall_rl.tiny.demonstrations import demonstration


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the model")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    make_checkpoint(args.out, demonstration, Recipe(steps=args.steps), args.seed)


if __name__ == "__main__":
    main()
