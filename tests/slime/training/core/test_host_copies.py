"""Tests copies in CPU memory: of any dtype and shape, complete, and in the same memory again."""

from __future__ import annotations

import pytest
import torch

from slime.training.core import host_copies
from slime.training.core.host_copies import HostCopies


def tensors(seed: int, more: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    shapes = [(3, 5), (), (0, 4), (7,), (100, 3), *[(2, 2)] * more]
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.bfloat16] + [
        torch.float32
    ] * more
    return [(10 * torch.rand(shape)).to(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def test_copies_are_equal_and_independent_of_their_sources() -> None:
    given = tensors(0)
    found = HostCopies().take([*given, given[0].T])
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(given, found, strict=False))
    assert torch.equal(found[-1], given[0].T)
    before = found[0].clone()
    given[0].zero_()
    assert torch.equal(found[0], before)


def test_memory_is_reused_even_by_a_longer_list() -> None:
    copies = HostCopies()
    first = [x.data_ptr() for x in copies.take(tensors(0))]
    for more in (0, 2):
        given = tensors(1, more)
        found = copies.take(given)
        assert [x.data_ptr() for x in found][:5] == first
        assert all(torch.equal(a, b) for a, b in zip(given, found, strict=True))
    other = [torch.ones(4, 4)]
    assert torch.equal(copies.take(other)[0], other[0])


def test_small_copies_share_blocks_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "BLOCK", 256)
    given = [torch.full((n,), float(n)) for n in (1, 17, 200, 3, 64, 65)]
    found = HostCopies().take(given)
    assert all(torch.equal(a, b) for a, b in zip(given, found, strict=True))
    assert found[0].untyped_storage().data_ptr() == found[1].untyped_storage().data_ptr()
    assert len({x.untyped_storage().data_ptr() for x in found}) > 2
