"""Checks whether a model folder is complete before anything is installed or started; reads no tensors.

`python -m slime.plan.model_folder FOLDER` prints its problems, and has exit status 1 then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from slime.weights.index import INDEX, files_of_tensors

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
    try:
        named = set(files_of_tensors(folder).values()) if (folder / INDEX).is_file() else set()
    except ValueError as error:
        return f"has an index that cannot be used: {error}"
    if missing := sorted(name for name in named if not (folder / name).is_file()):
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


def main() -> int:
    problem = lacking(Path(sys.argv[1]))
    print(problem, end="\n" if problem else "")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
