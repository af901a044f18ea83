"""The index of a model folder: in which of its files each tensor is. Needs only Python's standard library."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

INDEX = "model.safetensors.index.json"


def files_of_tensors(folder: Path) -> dict[str, str]:
    """Returns the file of each tensor, relative to the folder.

    Raises:
        ValueError: the index cannot be read, or names a file outside the folder.
    """
    try:
        files = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        names = {str(tensor): str(name) for tensor, name in files.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder / INDEX} cannot be read: {error!r}") from error
    for name in names.values():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ValueError(f"{folder / INDEX} names {name!r}, which is not a file of the folder")
    return names
