"""Converts a Hugging Face folder to a checkpoint of Megatron-LM (torch_dist).

    python slime/tools/convert_hf_to_torch_dist.py --hf-checkpoint FOLDER --save FOLDER [flags of the model's shape] [-f]

Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE. It needs no GPU, and memory for the weights. The model's shape is read from its
config.json; Megatron-LM's flags for it (--num-layers 36 ...) are compared with that. Under torchrun one process works.
A checkpoint fits every division, so there are no flags for one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claw_base.files import commit_folder, fresh_folder, write_text
from claw_base.settings.command_line import loaded, parser_of
from claw_base.settings.declare import REQUIRED, flag
from slime.arguments.upstream.refused import take_foreign
from slime.arguments.upstream.shape import check_shape
from slime.errors import ClawError
from slime.torch_dist import read_config, write
from slime.torch_dist.reading import RELEASE
from slime.weights.checkpoints import EARLIER_TRACKER


def convert(source: Path, save: Path) -> None:
    """Writes `save`/release, and names it in the tracker file when it is complete."""
    config = read_config(source)
    save.mkdir(parents=True, exist_ok=True)
    temporary = fresh_folder(save / RELEASE)
    write(source, config, temporary)
    commit_folder(temporary, save / RELEASE)
    write_text(save / EARLIER_TRACKER, RELEASE)


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The model to convert, and the result's folder."""

    hf_checkpoint: Path = flag(REQUIRED, "Hugging Face folder", unit="path")
    save: Path = flag(REQUIRED, "output folder of the checkpoint", unit="path")
    force: bool = flag(False, "replace the content of --save", aliases=("-f",))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error in one line."""
    about = "Make a torch_dist checkpoint of a Hugging Face folder."
    parser = parser_of(Converted, "convert_hf_to_torch_dist.py", about)
    known, words = parser.parse_known_args(argv)
    args = loaded(parser, Converted, known)
    if int(os.environ.get("RANK", "0")):
        return 0
    try:
        left, shape = take_foreign(words)
        if left:
            raise ClawError(f"{left[0]} does not belong here; --help lists what does")
        if args.save.exists() and any(args.save.iterdir()) and not args.force:
            raise ClawError(f"--save {args.save} is not empty; add -f to replace its checkpoint")
        read_config(args.hf_checkpoint)
        check_shape(str(args.hf_checkpoint), shape)
        convert(args.hf_checkpoint, args.save)
    except ClawError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{args.hf_checkpoint} is in {args.save / RELEASE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
