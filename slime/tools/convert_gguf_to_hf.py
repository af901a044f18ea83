"""A model in one GGUF file, quantized or not, as a Hugging Face folder that can be served and trained.

    pip install -r slime/tools/requirements-gguf.txt
    python slime/tools/convert_gguf_to_hf.py --input model.gguf --output FOLDER [--dtype bfloat16] [-f]

transformers reads the file: weights, shape, tokenizer, chat template (https://huggingface.co/docs/transformers/gguf).
Each weight becomes the number that its quantized form stands for, so the folder's model is the file's, not the one that
the file was made from.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from claw_base.files import commit_folder, fresh_folder
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag

MAGIC = b"GGUF"


def convert(file: Path, output: Path, dtype: str = "float32") -> None:
    """Writes model, in `dtype`, tokenizer and chat template of the file.

    Raises:
        ValueError: transformers does not read this architecture, or it has no chat template or no byte-level tokenizer.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
    if not tokenizer.chat_template:
        raise ValueError("it has no chat template, so it cannot be served: use an instruct model")
    set_pre_tokenizer(tokenizer, pre_tokenizer(file))
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=getattr(torch, dtype), trust_remote_code=False
    )
    forget_quantization(model)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


def pre_tokenizer(file: Path) -> str:
    """Returns the file's name for how text is split before merges."""
    from gguf import GGUFReader  # type: ignore[import-not-found,unused-ignore]

    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    return str(field.contents()) if field else ""


def set_pre_tokenizer(tokenizer: Any, name: str) -> None:
    """Makes SmolLM's tokenizer split every digit; transformers loads it with GPT-2's rules. Raises ValueError."""
    from tokenizers import decoders, pre_tokenizers

    backend = tokenizer.backend_tokenizer
    if "ByteLevel" not in str(backend.pre_tokenizer):
        raise ValueError(
            f"its tokenizer ({name or 'no name'}) is not byte-level; only byte-level ones can be served"
        )
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        backend.decoder = decoders.ByteLevel()


def forget_quantization(model: Any) -> None:
    """Removes transformers' record of the original format, which would prevent saving, although the weights are plain
    numbers by now."""
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False


def problem(file: Path, output: Path, force: bool) -> str | None:
    """Returns why this cannot be converted, or None."""
    if not file.is_file():
        return f"--input {file} is not a file"
    with file.open("rb") as content:
        if content.read(len(MAGIC)) != MAGIC:
            return f"--input {file} is not a GGUF file: it does not begin with {MAGIC.decode()}"
    if output.exists() and not force:
        return f"--output {output} exists; add -f to replace it"
    if output.resolve() in (file.resolve(), *file.resolve().parents):
        return f"--output {output} would replace its own input; take another folder"
    return None


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The model to convert, and the result's folder."""

    input: Path = flag(REQUIRED, "GGUF file", unit="path")
    output: Path = flag(REQUIRED, "folder to write", unit="path")
    dtype: Literal["float32", "bfloat16"] = flag("float32", "dtype of the written weights")
    force: bool = flag(False, "replace --output if it exists", aliases=("-f",))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error in one line."""
    args = parse(Converted, argv, "convert_gguf_to_hf.py", "Convert a GGUF file to a Hugging Face folder.")
    wrong = problem(args.input, args.output, args.force)
    if wrong is not None:
        print(wrong, file=sys.stderr)
        return 2
    temporary = fresh_folder(args.output.absolute())
    try:
        convert(args.input, temporary, args.dtype)
    except (ImportError, ValueError, KeyError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        print(f"{args.input} cannot be converted: {error}", file=sys.stderr)
        return 2
    commit_folder(temporary, args.output.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
