"""Makes a checkpoint of Megatron-LM (torch_dist) of a Hugging Face folder.

    python slime/tools/convert_hf_to_torch_dist.py --hf-checkpoint FOLDER --save FOLDER [flags of the model's shape] [-f]

Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE. It needs no GPU, and memory for the weights. The model's shape is read from its
config.json; Megatron-LM's flags for it (--num-layers 36 ...) are compared with that. Under torchrun one process works.
A checkpoint fits every division, so there are no flags for one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from claw_base.files import commit_folder, fresh_folder, write_text
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


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after one line about what is wrong."""
    parser = argparse.ArgumentParser(
        description="Make a torch_dist checkpoint of a Hugging Face folder.", allow_abbrev=False
    )
    parser.add_argument("--hf-checkpoint", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--save", type=Path, required=True, help="folder to write the checkpoint into")
    parser.add_argument("-f", "--force", action="store_true", help="replace what is in --save")
    args, words = parser.parse_known_args(argv)
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
