"""Tests attention kernels over a pack: all equal a loop over sequences, and report their requirements."""

from __future__ import annotations

import inspect
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from slime.errors import ConfigError
from slime.training.attention import kernels
from slime.training.attention.kernels import (
    attention_name,
    best_attention,
    block_mask,
    flex_packed_attention,
    packed_attention,
    repeats_heads,
    takes_varlen,
    varlen_attention,
    varlen_layout,
    visible,
)
from slime.training.core.packing import pieces_of
from tests.fakes.fixtures import MakeSamples, MakeTrainer

CPU = torch.device("cpu")
LAYOUT = ((7, 3, 9, 1), (12,), (2, 4))
TREE: Any = ((7, 3, (4, 2, (3, 1, 5), 2)), (5, (4, 2)))
"""38 tokens as well."""
WIDE_TREE: Any = ((130, 30, (129, 140, (3, 200, 1), 64)), (5,), (140, (150, (260, 40))))
WIDE_LAYOUT = ((200, 30, 129), (1,), (3,) * 40, (5,), (256,), (64, 64))


def inputs(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    n = sum(sum(run) for run in LAYOUT)
    return [torch.randn(1, heads, n, 16).to(dtype).requires_grad_() for heads in (4, 2, 2)]


def slow_varlen_attn(*given: object, **named: object) -> torch.Tensor:
    """torch's function by textbook attention; it accepts exactly the same shapes."""
    call = inspect.signature(varlen_attn).bind(*given, **named)
    call.apply_defaults()
    a = SimpleNamespace(**call.arguments)
    heads, width = a.query.shape[1:]
    assert a.cu_seq_q.dtype == a.cu_seq_k.dtype == torch.int32
    assert a.query.stride(-1) == a.key.stride(-1) == a.value.stride(-1) == 1
    assert int(a.cu_seq_q[-1]) == len(a.query) and int(a.cu_seq_k[-1]) == len(a.key) == len(a.value)
    assert a.max_q == int(a.cu_seq_q.diff().max()) and a.max_k == int(a.cu_seq_k.diff().max())
    assert a.enable_gqa == (heads != a.key.shape[1]) and a.window_size[1] == 0
    scale, outputs = a.scale or width**-0.5, []
    for i in range(len(a.cu_seq_q) - 1):
        q = a.query[a.cu_seq_q[i] : a.cu_seq_q[i + 1]].transpose(0, 1)
        k, v = (
            x[a.cu_seq_k[i] : a.cu_seq_k[i + 1]].transpose(0, 1).repeat_interleave(heads // x.shape[1], 0)
            for x in (a.key, a.value)
        )
        distance = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
        seen = (distance >= 0) & ((distance <= a.window_size[0]) | (a.window_size[0] < 0))
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(~seen, -torch.inf)
        outputs.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(
    "layout", [LAYOUT, TREE, ((38,),), ((20,), (18,))], ids=["branches", "tree", "one", "two"]
)
def test_varlen_attention_and_the_loop_over_sequences_agree(
    monkeypatch: pytest.MonkeyPatch, window: int | None, layout: Any
) -> None:
    monkeypatch.setattr(kernels, "varlen_attn", slow_varlen_attn)
    how: dict[str, Any] = {"scaling": 0.3, "sliding_window": window, "packed_layout": layout}
    results = []
    for attend in (packed_attention, varlen_attention):
        tensors = inputs()
        output = attend(torch.nn.Module(), *tensors, None, **how)[0]
        (output * torch.linspace(-1, 2, output.numel()).view(output.shape)).sum().backward()
        results.append([output.detach(), *(x.grad for x in tensors)])
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_torchs_varlen_kernel_accepts_the_given_shapes() -> None:
    """Runs on torch's meta device, on which the real function checks its arguments and computes shapes."""
    tensors = [x.detach().to("meta", torch.bfloat16).requires_grad_() for x in inputs()]
    output, _none = varlen_attention(torch.nn.Module(), *tensors, None, packed_layout=LAYOUT)
    assert output.shape == (1, 38, 4, 16)
    output.sum().backward()
    assert [x.grad.shape for x in tensors] == [x.shape for x in tensors]


def test_the_best_kernel_is_varlen_if_the_gpu_supports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    takes_varlen.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert takes_varlen(cuda, torch.bfloat16, 128) and takes_varlen(cuda, torch.float16, 256)
    assert not takes_varlen(cuda, torch.float32, 128)
    assert not takes_varlen(cuda, torch.bfloat16, 260) and not takes_varlen(cuda, torch.bfloat16, 100)
    assert not takes_varlen(CPU, torch.bfloat16, 128)
    takes_varlen.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not takes_varlen(cuda, torch.bfloat16, 128)
    takes_varlen.cache_clear()


def test_the_best_kernel_of_a_cpu_is_the_loop_over_sequences(caplog: pytest.LogCaptureFixture) -> None:
    takes_varlen.cache_clear()
    tensors = inputs()
    with caplog.at_level("INFO"):
        found = best_attention(torch.nn.Module(), *tensors, None, packed_layout=LAYOUT, scaling=0.3)[0]
    expected = packed_attention(torch.nn.Module(), *tensors, None, packed_layout=LAYOUT, scaling=0.3)[0]
    assert torch.equal(found, expected)
    assert "kernel=sdpa" in caplog.text


def test_varlen_pieces_list_the_keys_of_each_query() -> None:
    queries, keys, order = varlen_layout(((2, 1, 2), (3,)), CPU)
    assert order is not None
    assert queries.tolist() == [0, 2, 3, 5, 8]
    assert keys.tolist() == [0, 2, 5, 9, 12]
    assert order.tolist() == [0, 1, 0, 1, 2, 0, 1, 3, 4, 5, 6, 7]
    assert varlen_layout(((2,), (3,)), CPU)[2] is None


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("layout", [LAYOUT, TREE], ids=["branches", "tree"])
def test_flex_attention_and_the_loop_over_sequences_agree(layout: Any, window: int | None) -> None:
    q, k, v = (x.detach() for x in inputs())  # flex attention has gradients on GPUs only
    how: dict[str, Any] = {"scaling": 0.3, "sliding_window": window, "packed_layout": layout}
    expected, found = (
        attend(torch.nn.Module(), q, k, v, None, **how)[0]
        for attend in (packed_attention, flex_packed_attention)
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("window", [None, 1, 100, 300])
@pytest.mark.parametrize("layout", [LAYOUT, WIDE_LAYOUT, WIDE_TREE, ((128,), (384,)), ((700, 100),)])
def test_the_mask_of_flex_attention_equals_torchs_dense_one(layout: Any, window: int | None) -> None:
    n = sum(piece.length for piece in pieces_of(layout))
    found = block_mask(layout, window, CPU)
    expected = create_block_mask(visible(layout, window, CPU), None, None, n, n, device="cpu")
    assert found.seq_lengths == expected.seq_lengths
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for name in ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_attention_follows_the_layout() -> None:
    place, mask = 0, torch.zeros(38, 38, dtype=torch.bool)
    for run in LAYOUT:
        trunk, start = list(range(place, place + run[0])), place
        for branch, length in enumerate(run):
            own = list(range(start, start + length))
            seen = [*trunk, *own] if branch else own
            for query in own:
                mask[query, [key for key in seen if key <= query]] = True
            start += length
        place += sum(run)
    grid = torch.arange(38)
    found = visible(LAYOUT, None, CPU)(grid, grid, grid[:, None], grid[None, :])
    assert torch.equal(found, mask)


@pytest.mark.parametrize("window", [None, 5])
def test_every_piece_of_a_tree_attends_only_to_its_path(window: int | None) -> None:
    """Compared with textbook attention of each path, written by hand."""
    paths = [[0, 1], [0, 2, 3], [0, 2, 4, 5], [0, 2, 4, 6], [0, 2, 7], [8, 9, 10]]
    pieces = [list(range(one.start, one.start + one.length)) for one in pieces_of(TREE)]
    assert [len(piece) for piece in pieces] == [7, 3, 4, 2, 3, 1, 5, 2, 5, 4, 2]
    q, k, v = (x.detach() for x in inputs())
    found = packed_attention(
        torch.nn.Module(), q, k, v, None, scaling=0.3, sliding_window=window, packed_layout=TREE
    )[0]
    for path in paths:
        at = [place for piece in path for place in pieces[piece]]
        near = torch.arange(len(at))[:, None] - torch.arange(len(at))
        seen = (near >= 0) & (near < (window or len(at)))
        keys, values = (x[:, :, at].repeat_interleave(2, 1) for x in (k, v))
        scores = (q[:, :, at] @ keys.transpose(2, 3) * 0.3).masked_fill(~seen, -torch.inf)
        expected = (scores.softmax(-1) @ values).transpose(1, 2)
        torch.testing.assert_close(found[:, at], expected, atol=1e-5, rtol=1e-4)


class Peak(torch.utils._python_dispatch.TorchDispatchMode):
    """The largest tensor of any operation, in bytes."""

    largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        found = function(*given, **(named or {}))
        for x in found if isinstance(found, tuple | list) else [found]:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.numel() * x.element_size())
        return found


def test_the_mask_of_a_pack_of_32768_tokens_takes_less_than_a_mebibyte() -> None:
    layout = ((8192, 2000, 1096), *((4096,) for _ in range(5)), (1000,))
    assert sum(sum(run) for run in layout) == 32768
    tracemalloc.start()
    with Peak() as peak:
        mask = block_mask(layout, None, CPU)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert mask.shape[-2:] == (32768, 32768)
    assert peak.largest <= 2**20 and python <= 2**20, (peak.largest, python)


def test_a_cpu_computes_16_bits_in_fp32() -> None:
    """The CPU's bf16 kernel takes twice as long backward."""
    tensors = inputs(torch.bfloat16)
    found = packed_attention(torch.nn.Module(), *tensors, None, packed_layout=LAYOUT)[0]
    exact = packed_attention(torch.nn.Module(), *(x.float() for x in tensors), None, packed_layout=LAYOUT)[0]
    assert found.dtype == torch.bfloat16 and torch.equal(found, exact.bfloat16())


@pytest.mark.parametrize("window", [None, 5])
def test_repeated_heads_give_the_result_of_grouped_heads(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    """In float64, in which sums over repeated heads differ only in their last bits."""
    asked, results = list[bool](), []

    def attend(*given: Any, enable_gqa: bool, **named: Any) -> torch.Tensor:
        asked.append(enable_gqa)
        return scaled_dot_product_attention(*given, enable_gqa=enable_gqa, **named)

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", attend)
    for repeats in (False, True):
        monkeypatch.setattr(kernels, "repeats_heads", lambda *_, repeats=repeats: repeats)
        tensors, asked[:] = inputs(torch.float64), []
        output = packed_attention(
            torch.nn.Module(), *tensors, None, packed_layout=LAYOUT, sliding_window=window
        )[0]
        (output * torch.linspace(-1, 2, output.numel()).view(output.shape)).sum().backward()
        results.append([output.detach(), *(x.grad for x in tensors)])
        assert set(asked) == {not repeats}
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_heads_are_repeated_if_a_gpu_would_build_the_full_score_matrix() -> None:
    cuda = torch.device("cuda")
    assert repeats_heads(cuda, torch.bfloat16, masked=True) and repeats_heads(
        cuda, torch.float32, masked=False
    )
    assert not repeats_heads(cuda, torch.bfloat16, masked=False)
    assert not any(repeats_heads(CPU, dtype, True) for dtype in (torch.bfloat16, torch.float32))


def test_missing_flash_attention_is_rejected_with_torchs_kernel_as_a_remedy() -> None:
    args: Any = SimpleNamespace(attn_implementation="flash_attention_2")
    with pytest.raises(ConfigError, match="use varlen, the same kernel"):
        attention_name(args)


def test_a_trainer_never_uses_cudnn_attention(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the threads of autograd, which compute the backward pass."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    seen: list[bool] = []

    def attend(*given: Any, **named: Any) -> torch.Tensor:
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return scaled_dot_product_attention(*given, **named)

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", attend)
    make_trainer(gradient_checkpointing=True).train(0, make_samples(2))
    assert seen and not any(seen)
