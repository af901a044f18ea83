"""Converts a checkpoint of Megatron-LM (torch_dist) to a Hugging Face folder.

    python slime/tools/convert_torch_dist_to_hf.py --input-dir FOLDER --output-dir FOLDER --origin-hf-dir FOLDER [-f]

`--input-dir` is the checkpoint's own folder (iter_0000100, release) or the one that holds it. `--origin-hf-dir` gives
configuration and tokenizer. Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE; no GPU, one tensor of the checkpoint and one output
file in memory at a time. Checkpoints of this trainer (checkpoint-12) are Hugging Face folders already.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from claw_base.files import commit_folder, fresh_folder
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import CheckpointError, ClawError
from slime.torch_dist import TorchDist, read_config, stored_shapes
from slime.weights.folders import WEIGHT_FILES

CHUNK = 5 * 1024**3


def convert(
    source: Path, origin: Path, output: Path, chunk: int = CHUNK, vocabulary: int | None = None
) -> None:
    """Writes `output`, which appears whole or not at all. Raises ClawError if a weight is missing or another."""
    config = read_config(origin)
    config.vocab_size = vocabulary or config.vocab_size
    checkpoint = TorchDist(source, config)
    temporary = fresh_folder(output)
    try:
        copy_rest(origin, temporary, vocabulary)
        files = Files(temporary, chunk)
        files.add(checked(checkpoint.tensors(), stored_shapes(config), source))
        files.finish()
    except BaseException:
        shutil.rmtree(temporary)
        raise
    commit_folder(temporary, output)


def copy_rest(origin: Path, folder: Path, vocabulary: int | None) -> None:
    """Configuration and tokenizer."""
    for file in sorted(origin.iterdir()):
        if file.is_file() and not file.name.endswith(WEIGHT_FILES):
            shutil.copyfile(file, folder / file.name)
    if vocabulary:
        known = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(known | {"vocab_size": vocabulary}, indent=2))


def checked(
    tensors: Iterable[tuple[str, Tensor]], shapes: dict[str, list[int]], source: Path
) -> Iterable[tuple[str, Tensor]]:
    """The same tensors.

    Raises:
        CheckpointError: the model of the configuration has others.
    """
    lacking = set(shapes)
    for name, tensor in tensors:
        if shapes.get(name) != list(tensor.shape):
            raise CheckpointError(
                f"{source} is of another model: {name} is {list(tensor.shape)} in it and "
                f"{shapes.get(name, 'not there')} in the model of --origin-hf-dir"
            )
        lacking.discard(name)
        yield name, tensor
    if lacking:
        raise CheckpointError(f"{source} lacks {len(lacking)} weights, such as {min(lacking)}")


class Files:
    """The safetensors files of a folder, each of about `chunk` bytes at most."""

    def __init__(self, folder: Path, chunk: int) -> None:
        self.folder, self.chunk = folder, chunk
        self.parts: list[list[str]] = []
        self.pending: dict[str, Tensor] = {}
        self.total = 0

    def add(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        size = 0
        for name, tensor in tensors:
            if self.pending and size + tensor.nbytes > self.chunk:
                self._write()
                size = 0
            self.pending[name] = tensor.contiguous().clone()
            size += tensor.nbytes
            self.total += tensor.nbytes

    def finish(self) -> None:
        """Writes the rest, gives the files their final names, and writes the index if there are several."""
        self._write()
        count = len(self.parts)
        of: dict[str, str] = {}
        for number, names in enumerate(self.parts):
            name = f"model-{number + 1:05d}-of-{count:05d}.safetensors" if count > 1 else "model.safetensors"
            self._part(number).rename(self.folder / name)
            of |= dict.fromkeys(names, name)
        if count > 1:
            index = {"metadata": {"total_size": self.total}, "weight_map": of}
            (self.folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))

    def _write(self) -> None:
        save_file(self.pending, str(self._part(len(self.parts))), metadata={"format": "pt"})
        self.parts.append(list(self.pending))
        self.pending = {}

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number}"


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The model to convert, and the result's folder."""

    input_dir: Path = flag(REQUIRED, "folder of the checkpoint", unit="path")
    output_dir: Path = flag(REQUIRED, "folder to write", unit="path")
    origin_hf_dir: Path = flag(REQUIRED, "Hugging Face folder of the same model", unit="path")
    vocab_size: int | None = flag(None, "tokens without padding (default: config.json's)")
    chunk_size: int = flag(CHUNK, "most bytes of an output file")
    force: bool = flag(False, "replace --output-dir if it exists", aliases=("-f",))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error in one line."""
    about = "Make a Hugging Face folder of a torch_dist checkpoint."
    args = parse(Converted, argv, "convert_torch_dist_to_hf.py", about)
    try:
        if args.output_dir.exists() and not args.force:
            raise ClawError(f"--output-dir {args.output_dir} exists; add -f to replace it")
        inputs = {args.input_dir.resolve(), args.origin_hf_dir.resolve()}
        if inputs & {args.output_dir.resolve()} or any(
            args.output_dir.resolve() in one.parents for one in inputs
        ):
            raise ClawError(f"--output-dir {args.output_dir} would replace its own input; use another folder")
        convert(args.input_dir, args.origin_hf_dir, args.output_dir, args.chunk_size, args.vocab_size)
    except ClawError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{args.input_dir} is in {args.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
