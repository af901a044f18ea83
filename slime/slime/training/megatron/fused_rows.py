"""Matrices that consist of several stacked matrices, each of which is divided over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Sections = tuple[tuple[int, ...], ...]
"""For each section, the row counts of its Hugging Face tensors."""


def cut(whole: Tensor, sizes: Sequence[int], ranks: int, rank: int) -> Tensor:
    """Returns the rows of rank `rank` of `ranks`: its part of every section."""
    if ranks == 1:
        return whole
    return torch.cat([part.chunk(ranks)[rank] for part in torch.split(whole, list(sizes))])


def join_rank_parts(parts: Sequence[Tensor], sections: Sections) -> list[Tensor]:
    """Rebuilds the folder's tensors from the parts of all ranks."""
    sizes = [size // len(parts) for group in sections for size in group]
    by_rank = [torch.split(part, sizes) for part in parts]
    whole = torch.cat([rank[i] for i in range(len(sizes)) for rank in by_rank])
    return list(torch.split(whole, [sum(group) for group in sections]))
