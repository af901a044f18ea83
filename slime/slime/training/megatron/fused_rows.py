"""Matrices that are several ones below each other: ranks cut each of these for itself, and have all cuts in one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Sections = tuple[tuple[int, ...], ...]
"""Rows of every section, by the tensors of a Hugging Face folder that they are in."""


def cut(whole: Tensor, sizes: Sequence[int], ranks: int, rank: int) -> Tensor:
    """Returns the rows of one of `ranks` ranks: its part of each section."""
    if ranks == 1:
        return whole
    return torch.cat([part.chunk(ranks)[rank] for part in torch.split(whole, list(sizes))])


def put_together(parts: Sequence[Tensor], sections: Sections) -> list[Tensor]:
    """Returns the tensors of a folder, of what every rank has."""
    sizes = [size // len(parts) for group in sections for size in group]
    by_rank = [torch.split(part, sizes) for part in parts]
    whole = torch.cat([rank[i] for i in range(len(sizes)) for rank in by_rank])
    return list(torch.split(whole, [sum(group) for group in sections]))
