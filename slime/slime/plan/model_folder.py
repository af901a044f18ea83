"""Checks whether a model folder is complete before anything is installed or started; reads no tensors.

`python -m slime.plan.model_folder FOLDER` prints its problems, and has exit status 1 then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
LENGTH_BYTES = 8
"""Bytes of the number at the start of a safetensors file: the length of its header."""


def lacking(folder: Path) -> str:
    """Returns the missing or truncated files, as text; empty if the folder is complete."""
    if not (folder / "config.json").is_file():
        return "contains no config.json"
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return "contains no *.safetensors"
    missing = [name for name in _named(folder / INDEX) if not (folder / name).is_file()]
    if missing:
        return f"lacks {len(missing)} of the files listed in {INDEX}, for example {missing[0]}"
    for file in files:
        if problem := cut_short(file):
            return f"has {file.name}, {problem}"
    return "" if (folder / TOKENIZER).is_file() else f"contains no {TOKENIZER}"


def cut_short(file: Path) -> str:
    """Returns why a safetensors file is truncated; "" if it is as long as its header states."""
    size = file.stat().st_size
    with file.open("rb") as content:
        length = int.from_bytes(content.read(LENGTH_BYTES), "little")
        if length > size - LENGTH_BYTES:
            return f"whose header is incomplete ({size} bytes; if it is a git-lfs pointer of about 130, run git lfs pull)"
        try:
            header = json.loads(content.read(length))
            ends = [
                int(tensor["data_offsets"][1]) for name, tensor in header.items() if name != "__metadata__"
            ]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return "whose header cannot be read"
    expected_size = LENGTH_BYTES + length + max(ends, default=0)
    return "" if size >= expected_size else f"which has {size} of its {expected_size} bytes"


def _named(index: Path) -> list[str]:
    """Returns the files listed in an index; [] if it cannot be read."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted({str(name) for name in names})
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []


def main() -> int:
    problem = lacking(Path(sys.argv[1]))
    print(problem, end="\n" if problem else "")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
