"""The command of a track that creates its tiny checkpoint."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from claw_lab.tiny_models.recipe import Draw, Recipe, make_checkpoint


def command(
    module: str,
    about: str | None,
    draw: Draw,
    recipe: Recipe,
    words: Sequence[str] | None = None,
    threads: int = 1,
) -> None:
    """Reads the command line and creates the checkpoint.

    Args:
        module: the name after `python -m`; `about`: its help.
        words: the command line, instead of this process's own.
        threads: of torch, if the command line gives no number.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("out", type=Path, help="folder of the model")
    parser.add_argument(
        "--steps", type=int, default=recipe.steps, help="number of updates (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=threads, help="threads of torch (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(args.threads)
    make_checkpoint(args.out, draw, replace(recipe, steps=args.steps), args.seed)
