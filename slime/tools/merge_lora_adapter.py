"""Merges a LoRA adapter into its base model: a Hugging Face folder that needs no PEFT.

    python slime/tools/merge_lora_adapter.py --base-model FOLDER --adapter FOLDER --output FOLDER [-f]

`--adapter` is a folder in PEFT's format, or a checkpoint of slime (`checkpoint-12`), which holds one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM

from claw_base.files import commit_folder, fresh_folder
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.weights.probe import measure, write_probe

CONFIG = "adapter_config.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


def merge(base: Path, adapter: Path, output: Path) -> None:
    """Writes base + scale * B A for every adapted module, in the dtype of the base, and that model's log-probs
    (`probe.json`), with which an engine that loads it is verified."""
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", local_files_only=True, trust_remote_code=False
    )
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)
    merged.save_pretrained(output)
    write_probe(output, measure(merged.eval(), base, int(merged.get_input_embeddings().weight.shape[0])))
    for file in sorted(base.iterdir()):
        if file.is_file() and not file.name.endswith(WEIGHTS) and not (output / file.name).exists():
            shutil.copyfile(file, output / file.name)


def problem(base: Path, adapter: Path, output: Path, force: bool) -> str | None:
    """Returns why these folders cannot be merged, or None."""
    if not (base / "config.json").is_file():
        return f"--base-model {base} contains no config.json; give the folder of a Hugging Face model"
    if not (adapter / CONFIG).is_file():
        return f"--adapter {adapter} holds no {CONFIG}; give the folder of an adapter or of a checkpoint with one"
    if output.exists() and not force:
        return f"--output {output} exists; add -f to replace it"
    if output.resolve() in (
        base.resolve(),
        adapter.resolve(),
        *base.resolve().parents,
        *adapter.resolve().parents,
    ):
        return f"--output {output} would replace its own input; take another folder"
    return None


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The adapter and base to merge."""

    base_model: Path = flag(REQUIRED, "Hugging Face folder", unit="path")
    adapter: Path = flag(REQUIRED, "folder of the adapter, or of a checkpoint", unit="path")
    output: Path = flag(REQUIRED, "folder to write", unit="path")
    force: bool = flag(False, "replace --output if it exists", aliases=("-f",))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error in one line."""
    args = parse(Merged, argv, "merge_lora_adapter.py", "Merge a LoRA adapter into its base model.")
    adapter: Path = (
        args.adapter / "adapter" if (args.adapter / "adapter" / CONFIG).is_file() else args.adapter
    )
    wrong = problem(args.base_model, adapter, args.output, args.force)
    if wrong is not None:
        print(wrong, file=sys.stderr)
        return 2
    output: Path = args.output.absolute()
    temporary = fresh_folder(output)
    try:
        merge(args.base_model, adapter, temporary)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        print(f"{adapter} cannot be merged into {args.base_model}: {error}", file=sys.stderr)
        return 2
    commit_folder(temporary, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
