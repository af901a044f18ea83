"""Checks that SGLang's own function rebuilds the trained ids of a prompt with pictures.

`python -m claw_lab.long.sglang_pictures PACKAGES`, the folder of an SGLang's packages. The function is extracted from
its file, since importing the file loads all of SGLang.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

from slime.vision.pictures import marked_ids
from slime.vision.place import ImagePlace

FILE = "sglang/srt/multimodal/processors/base_processor.py"
FUNCTION = "_expand_input_ids"
MARK = 151655


def function_of(packages: Path) -> Callable[[list[int], list[int], int], list[int]]:
    """Returns SGLang's function. Raises LookupError if its file has none of that name."""
    for node in ast.walk(ast.parse((packages / FILE).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            node.decorator_list = []
            known: dict[str, object] = {}
            code = ast.Module([ast.parse("from typing import List, Optional").body[0], node], [])
            exec(compile(code, FILE, "exec"), known)
            return known[FUNCTION]  # type: ignore[return-value]
    raise LookupError(f"{FILE} has no {FUNCTION}: SGLang keeps a prompt's ids in another way")


def main() -> int:
    expand = function_of(Path(sys.argv[1]))
    places = [
        ImagePlace(2, 6, (1, 4, 6), "a"),
        ImagePlace(10, 1, (1, 2, 2), "b"),
        ImagePlace(11, 4, (1, 4, 4), "c"),
    ]
    ids = [1, 2, *[MARK] * 6, 3, 4, *[MARK] * 5, 5, 6]
    assert expand(marked_ids(ids, places), [place.length for place in places], MARK) == ids
    try:
        expand(ids, [place.length for place in places], MARK)
    except ValueError:
        print("SGLang keeps the ids of prompts with pictures")
        return 0
    raise AssertionError("SGLang takes expanded marks too: one mark a picture is no longer needed")


if __name__ == "__main__":
    sys.exit(main())
