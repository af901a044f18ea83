"""Tests gated delta nets in a pack: neither the convolution nor the state crosses from one sample to the next."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import silu
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)
from transformers.models.qwen3_5 import modeling_qwen3_5

from slime.errors import ConfigError
from slime.training.attention import linear
from slime.training.attention.linear import decay, kernel_of, log_kernels, packed_delta_rule
from slime.training.core.packing import pack, pieces_of
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeTrainer
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


@pytest.fixture
def hybrid(tmp_path: Path) -> str:
    """Creates a random model with a gated delta net, full attention and another gated delta net."""
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=63,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        initializer_range=0.1,
        tie_word_embeddings=False,
    )
    Qwen3_5ForCausalLM(config).save_pretrained(tmp_path / "hybrid")
    (tmp_path / "hybrid" / "tokenizer_config.json").write_text("{}")
    return str(tmp_path / "hybrid")


def sample(index: int, prompt: list[int], response: list[int]) -> Sample:
    return Sample(
        index=index,
        group_index=index,
        tokens=prompt + response,
        response_length=len(response),
        temperature=0.8,
    )


SAMPLES = [
    sample(0, [5, 9], [3, 4, 5]),  # a shared prompt shorter than the convolution's window
    sample(1, [5, 9], [8]),
    sample(2, [1, *range(20, 60)], list(range(10, 50))),  # more than one chunk of the kernel
    sample(3, [1, *range(20, 60)], [2, 62, 7]),
    sample(4, [7, 1, 2, 3], [3, 2, 1, 0, 9]),
]


@pytest.mark.parametrize("merge", [True, False])
def test_each_packed_sample_has_the_log_probs_and_gradients_of_a_single_run(
    make_trainer: MakeTrainer, hybrid: str, merge: bool
) -> None:
    model = make_trainer(hf_checkpoint=hybrid, ref_load=hybrid).model
    alone = AutoModelForCausalLM.from_pretrained(hybrid, attn_implementation="eager")
    packed = pack(SAMPLES, torch.device("cpu"), merge=merge)
    ours = model.distribution(packed).log_probs(packed.targets)
    rows = []
    for one in SAMPLES:
        logits = alone(torch.tensor([one.tokens])).logits[0] / one.temperature
        targets = torch.tensor(one.tokens[one.prompt_length :])
        rows.append(torch.log_softmax(logits, -1)[one.prompt_length - 1 : -1].gather(-1, targets[:, None]))
    theirs = torch.cat(rows).squeeze(-1)
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    wanted = {name: parameter.grad for name, parameter in alone.named_parameters()}
    for name, parameter in model.named_parameters():
        gap = (parameter.grad.full_tensor() - wanted[name]).norm()
        assert gap <= 1e-4 * wanted[name].norm(), name  # fp32, summed in another order


@pytest.fixture
def half(hybrid: str) -> str:
    """Creates the same in bf16 except the decays, as Qwen3.5 is published."""
    folder = Path(hybrid)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    tensors = load_file(folder / "model.safetensors")
    halved = {name: x.clone() if name.endswith("A_log") else x.bfloat16() for name, x in tensors.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})
    return hybrid


def decays(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Returns A_log and dt_bias of all layers, as used in one pass."""
    seen: list[torch.Tensor] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            linear,
            "decay",
            lambda a, *given: seen.extend(x.detach().clone() for x in given) or decay(a, *given),
        )
        trainer.log_probs([SAMPLES[0]])
    return seen


def test_decays_are_computed_and_exported_in_the_folders_dtype(
    make_trainer: MakeTrainer, half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"hf_checkpoint": half, "ref_load": half, "bf16": True, "loss_type": "sft_loss"}
    flags |= {"rollout_backend": "sglang", "rollout_num_gpus": 1, "lr": 1e-2}
    trainer = make_trainer(**flags)
    before = load_file(Path(half) / "model.safetensors")
    first, bias = decays(trainer, monkeypatch)[:2]
    assert first.dtype == torch.float32 and bias.dtype == torch.bfloat16
    assert torch.equal(first, before["model.layers.0.linear_attn.A_log"])
    trainer.train(0, SAMPLES)
    trainer.export_weights(str(tmp_path / "out"), 1)
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert {name: x.dtype for name, x in after.items()} == {name: x.dtype for name, x in before.items()}
    trained = [x for x in decays(trainer, monkeypatch) if x.dtype == torch.float32]
    for layer, found in zip((0, 2), trained, strict=True):
        name = f"model.layers.{layer}.linear_attn.A_log"
        assert torch.equal(after[name], found) and not torch.equal(found, before[name])
        assert not torch.equal(found, found.bfloat16().float())
    trainer.save(0, 1, 0)
    resumed = make_trainer(**flags)
    resumed.load()
    assert resumed.export_weights(str(tmp_path / "again"), 2) == trainer.export_weights(
        str(tmp_path / "out"), 3
    )


def test_the_embedded_engine_gets_all_tensors_in_one_dtype(
    make_trainer: MakeTrainer, half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(
        hf_checkpoint=half, ref_load=half, bf16=True, rollout_backend="embedded", rollout_num_gpus=1
    )
    assert {x.dtype for x in decays(trainer, monkeypatch)} == {torch.bfloat16}
    trainer.export_weights(str(tmp_path / "out"), 1)
    assert {x.dtype for x in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


RANK = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
rank, folder = int(sys.argv[1]), sys.argv[2]
args, samples = pickle.load(open(folder + "/order", "rb"))
trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
found = {}
def move():
    found.update({name: p.grad.full_tensor() for name, p in trainer.model.named_parameters()})
trainer.learner.move = move
trainer.train(0, samples)
pickle.dump(found, open(f"{folder}/result{rank}", "wb"))
trainer.close()
"""


def test_gradients_of_decays_are_averaged_over_all_ranks(
    make_args: MakeArgs, make_trainer: MakeTrainer, half: str, fsdp_forks: Forks, tmp_path: Path
) -> None:
    flags: dict[str, Any] = {
        "hf_checkpoint": half,
        "ref_load": half,
        "loss_type": "sft_loss",
        "clip_grad": 0.0,
    }
    flags |= {"rollout_backend": "sglang", "rollout_num_gpus": 1}
    (tmp_path / "order").write_bytes(pickle.dumps((make_args(**flags, bf16=True), SAMPLES)))
    fsdp_forks.run(RANK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    one, wanted = make_trainer(**flags), dict[str, torch.Tensor]()
    one.learner.move = lambda: wanted.update(
        {name: p.grad.full_tensor() for name, p in one.model.named_parameters()}
    )
    one.train(0, SAMPLES)
    for rank in range(2):
        found = pickle.loads((tmp_path / f"result{rank}").read_bytes())
        for name, gradient in wanted.items():
            gap = (found[name] - gradient).norm()
            assert gap <= 0.25 * gradient.norm(), (
                name
            )  # bf16 against fp32; a sum instead of a mean would differ by 1


def test_the_log_reports_once_the_kernel_of_linear_attention(
    make_trainer: MakeTrainer, hybrid: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_kernels.cache_clear()
    with caplog.at_level("INFO"):
        trainer = make_trainer(hf_checkpoint=hybrid, ref_load=hybrid)
        for _ in range(2):
            trainer.log_probs([SAMPLES[0]])
    told = [record.getMessage() for record in caplog.records if "linear attention" in record.getMessage()]
    assert told == ["linear attention delta_rule=torch convolution=torch"]


def test_the_log_names_the_kernel_that_runs_not_the_installed_one() -> None:
    def function_of(implementation: Any, is_new_implementation: bool) -> Any:
        def wrapped() -> Any:
            return implementation() if is_new_implementation else None

        return wrapped

    def kernel() -> None: ...

    kernel.__module__ = "fla.ops.gated_delta_rule.chunk"
    assert kernel_of(function_of(kernel, True)) == "fla"
    assert kernel_of(function_of(kernel, False)) == kernel_of(kernel) == "torch"


class Wide:
    """torch, with float64 in place of the fp32 that transformers' rule requests."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def by_the_book(
    qkv: torch.Tensor, beta: torch.Tensor, left: torch.Tensor, kernel: torch.Tensor
) -> torch.Tensor:
    """Returns [n, 4, 12] for one sequence [n, C], computed token by token after the convolution: the recurrence of
    Yang et al. 2024."""
    padded = torch.cat([qkv.new_zeros(3, qkv.shape[1]), qkv])
    mixed = silu(torch.stack([(padded[t : t + 4] * kernel.T).sum(0) for t in range(len(qkv))]))
    q, k, v = (
        x.unflatten(-1, (heads, -1))
        for x, heads in zip(mixed.split([16, 16, 48], -1), (2, 2, 4), strict=True)
    )
    q, k = (
        (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)).repeat_interleave(2, dim=1) for x in (q, k)
    )
    state, rows = qkv.new_zeros(4, 8, 12), []
    for t in range(len(qkv)):
        state = state * left[t].exp()[:, None, None]
        known = torch.einsum("hkv,hk->hv", state, k[t])
        state = state + torch.einsum("hk,hv->hkv", k[t], (v[t] - known) * beta[t, :, None])
        rows.append(torch.einsum("hkv,hk->hv", state, q[t]) * 8**-0.5)
    return torch.stack(rows)


@pytest.mark.parametrize("layout", [((2, 3, 1), (40, 30), (66,)), ((2, (1, 40, (2, 3, 1)), 7), (66,))])
def test_in_float64_a_pack_equals_the_token_by_token_rule_with_gradients(
    monkeypatch: pytest.MonkeyPatch, layout: Any
) -> None:
    monkeypatch.setattr(modeling_qwen3_5, "torch", Wide())
    pieces = pieces_of(layout)
    size = sum(piece.length for piece in pieces)
    torch.manual_seed(0)
    draw = partial(torch.rand, dtype=torch.float64)
    inputs = draw(1, size, 80) - 0.5, draw(1, size, 4), -draw(1, size, 4), draw(80, 4) - 0.5
    for x in inputs:
        x.requires_grad_()
    qkv, beta, left, kernel = inputs
    found = packed_delta_rule(*inputs, (8, 12), layout)
    weight, expected = torch.randn_like(found), []
    places = [list(range(piece.start, piece.start + piece.length)) for piece in pieces]
    for number, piece in enumerate(pieces):
        seen = [place for one in (*piece.path, number) for place in places[one]]
        rows = by_the_book(qkv[0, seen], beta[0, seen], left[0, seen], kernel)
        expected.append(rows[-piece.length :])
    theirs = torch.cat(expected).unsqueeze(0)
    assert_close(found, theirs, atol=1e-13, rtol=1e-13)
    for ours, wanted in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((theirs * weight).sum(), inputs),
        strict=True,
    ):
        assert_close(ours, wanted, atol=1e-12, rtol=1e-12)


def test_a_model_with_other_recurrent_layers_is_rejected(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    MambaForCausalLM(MambaConfig(vocab_size=63, hidden_size=16, num_hidden_layers=1)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ConfigError, match="is a mamba, whose recurrent layers would carry state"):
        make_trainer(hf_checkpoint=str(tmp_path), ref_load=str(tmp_path))
