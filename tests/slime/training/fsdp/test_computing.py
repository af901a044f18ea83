"""Tests equivalent computations: chunks of logits, recomputed activations, other precision, other losses' sums; and
the choice of trained weights."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from slime.errors import ConfigError
from slime.losses import ChunkedDistribution, DenseDistribution
from slime.training.core.fused import fuses_activations, fuses_norms, rms_norm
from slime.training.fsdp import loading
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
RICH: dict[str, Any] = {
    "entropy_coef": 0.1,
    "use_kl_loss": True,
    "kl_loss_coef": 0.1,
    "kl_loss_type": "k3",
    "global_batch_size": 3,
}


def whole(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def test_a_chunked_distribution_is_the_dense_one_in_values_and_gradients() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    head = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    temperatures = torch.rand(11, dtype=torch.float64) + 0.5
    ids, several = torch.randint(0, 50, (11,)), torch.randint(0, 50, (11, 3))
    results = []
    rows: list[int] = []

    def project(part: torch.Tensor) -> torch.Tensor:
        rows.append(len(part))
        return part @ head.T

    for dist in (
        DenseDistribution(hidden @ head.T, temperatures),
        ChunkedDistribution(hidden, project, temperatures, chunk=4),
    ):
        outputs = [
            dist.log_probs(ids),
            dist.log_probs(several),
            dist.entropy(),
            dist.logsumexp(),
            dist.topk(2)[0],
        ]
        loss = sum((x * torch.linspace(-1, 2, x.numel()).reshape(x.shape)).sum() for x in outputs)
        results.append([*outputs, *torch.autograd.grad(loss, (hidden, head)), dist.topk(2)[1]])
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected)
    assert max(rows) == 4


def test_a_chunked_distribution_computes_log_probs_of_the_same_ids_once() -> None:
    torch.manual_seed(0)
    hidden, head = (torch.randn(n, 8, requires_grad=True) for n in (11, 50))
    ids, other, rows = torch.randint(0, 50, (11,)), torch.randint(0, 50, (11,)), list[int]()

    def project(part: torch.Tensor) -> torch.Tensor:
        rows.append(len(part))
        return part @ head.T

    dist, fresh = (ChunkedDistribution(hidden, project, torch.ones(11), chunk=4) for _ in range(2))
    with torch.no_grad():
        scored = dist.log_probs(ids)
    assert not scored.requires_grad and sum(rows) == 11
    trained = dist.log_probs(ids)
    assert trained.requires_grad and torch.equal(trained, scored) and sum(rows) == 22
    with torch.no_grad():
        assert dist.log_probs(ids) is trained
    assert dist.log_probs(ids) is trained and sum(rows) == 22
    assert torch.equal(dist.log_probs(other), fresh.log_probs(other))


def test_a_chunked_distribution_measures_the_entropy_with_the_log_probs_of_a_loss() -> None:
    torch.manual_seed(0)
    hidden, head = (torch.randn(n, 8, requires_grad=True) for n in (11, 50))
    entropies, rows = list[int](), list[int]()

    class Counted(DenseDistribution):
        def entropy(self) -> torch.Tensor:
            entropies.append(len(self.logits))
            return super().entropy()

    def project(part: torch.Tensor) -> torch.Tensor:
        rows.append(len(part))
        return part @ head.T

    dist = ChunkedDistribution(hidden, project, torch.ones(11), 4, Counted)
    expected = DenseDistribution(hidden @ head.T).entropy()
    found = dist.log_probs(torch.randint(0, 50, (11,)))
    with torch.no_grad():
        measured = dist.entropy()
    torch.testing.assert_close(measured, expected.detach())
    assert not measured.requires_grad and sum(rows) == sum(entropies) == 11
    found.sum().backward()
    assert sum(rows) == 22 and sum(entropies) == 11  # logits for gradients are computed without it
    torch.testing.assert_close(dist.entropy(), expected)
    assert dist.entropy().requires_grad


def test_the_first_step_runs_the_output_head_no_more_than_its_loss_does(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    """The old log-probs are those of the step itself, and so are the reported ones."""
    trainer = make_trainer(log_probs_chunk_size=5, max_tokens_per_gpu=1000)
    head, rows = trainer.model.deferred, list[int]()
    project = head.project
    head.project = lambda part: rows.append(len(part)) or project(part)
    samples = make_samples(4)
    trainer.train(0, samples)
    trained = sum(sample.effective_response_length for sample in samples)
    # Once forward, with the reported entropy, and once more for gradients
    assert sum(rows) == 2 * trained


@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize(
    "way", [{"log_probs_chunk_size": 5}, {"gradient_checkpointing": True}], ids=["chunks", "recomputed"]
)
def test_memory_saving_flags_change_no_update(
    make_trainer: MakeTrainer, make_samples: MakeSamples, adapters: dict[str, Any], way: dict[str, Any]
) -> None:
    samples = make_samples(6)
    plain, saving = (make_trainer(**RICH | adapters | more) for more in ({}, way))
    metrics = [[trainer.train(i, copy.deepcopy(samples)) for i in range(2)] for trainer in (plain, saving)]
    for expected, found in zip(*metrics, strict=True):
        for name in expected.keys() - {"train_seconds"}:
            assert found[name] == pytest.approx(expected[name], rel=2e-3, abs=2e-5), name
    theirs = whole(saving)
    for name, tensor in whole(plain).items():
        torch.testing.assert_close(theirs[name], tensor, atol=3e-4, rtol=1e-3)


def test_bf16_computation_with_fp32_weights_is_close_to_fp32(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    exact, rough = make_trainer(), make_trainer(bf16=True)
    assert {tensor.dtype for tensor in whole(rough).values()} == {torch.float32}
    loss, near = (trainer.train(0, samples)["grad_norm"] for trainer in (exact, rough))
    assert near != loss
    assert near == pytest.approx(loss, rel=0.05)
    assert {state["exp_avg"].dtype for state in rough.learner.optimizer.state.values()} == {torch.float32}


@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
def test_fused_layers_match_the_plain_ones(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    monkeypatch: pytest.MonkeyPatch,
    adapters: dict[str, Any],
) -> None:
    """In fp32 except the order of sums; compiled functions run uncompiled."""
    norms = list[int]()
    monkeypatch.setattr(loading, "rms_norm", lambda *given: norms.append(1) or rms_norm(*given))
    found = []
    with torch.compiler.set_stance("force_eager"):
        for kind in ("off", "all"):
            trainer = make_trainer(**RICH | adapters, fused_layers=kind, gradient_checkpointing=True)
            metrics = [trainer.train(i, make_samples(6)) for i in range(2)]
            found.append((metrics, trainer.log_probs(make_samples(3, seed=1)), len(norms)))
    (expected, scores, plain), (metrics, ours, counted) = found
    assert plain == 0 and counted > 0
    for one, other in zip(expected, metrics, strict=True):
        for name in one.keys() - {"train_seconds"}:
            assert other[name] == pytest.approx(one[name], rel=2e-3, abs=2e-5), name
    for values, others in zip(scores, ours, strict=True):
        assert others == pytest.approx(values, abs=1e-3)


def test_fused_layers_are_used_on_gpus_only_unless_forced() -> None:
    def args(kind: str, gpus: int) -> Any:
        return SimpleNamespace(fused_layers=kind, actor_num_gpus_per_node=gpus)

    assert [fuses_norms(args(kind, gpus)) for kind in ("auto", "all", "off") for gpus in (0, 1)] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert [fuses_activations(args(kind, 1)) for kind in ("auto", "all", "off")] == [False, True, False]


def test_in_bf16_a_fused_norm_is_more_exact_than_the_plain_one() -> None:
    torch.manual_seed(0)
    norm = Qwen3RMSNorm(256)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    hidden = torch.randn(64, 256)
    exact, rough = norm(hidden), copy.deepcopy(norm).bfloat16()
    assert torch.equal(rms_norm(hidden, norm.weight, norm.variance_epsilon), exact)
    gaps = [
        (found.float() - exact).abs().mean()
        for found in (
            rms_norm(hidden.bfloat16(), rough.weight, rough.variance_epsilon),
            rough(hidden.bfloat16()),
        )
    ]
    assert gaps[0] < gaps[1] < 0.01


def test_only_chosen_weights_are_trained_and_stored(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    only = make_trainer(only_train_params_name_list=[r"layers\.1\.mlp"])
    frozen = make_trainer(freeze_params_name_list=["embed_tokens", "norm"])
    for trainer, wanted in (
        (only, lambda name: "layers.1.mlp" in name),
        (frozen, lambda name: "norm" not in name and "embed" not in name and "lm_head" not in name),
    ):
        before = whole(trainer)
        trainer.train(0, make_samples(3))
        after = whole(trainer)
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == {name for name in before if wanted(name)}
    only.save(0, version=1, parent=0)
    restored = make_trainer(only_train_params_name_list=[r"layers\.1\.mlp"], seed=7)
    restored.load()
    after, found = whole(only), whole(restored)
    assert all(torch.equal(after[name], found[name]) for name in after)
    with pytest.raises(ConfigError, match="matches no weight"):
        make_trainer(freeze_params_name_list=["nothing_here"])


def test_groups_without_signal_are_counted_and_have_no_gradient(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(7)
    for sample, group, reward in zip(samples, "aaabbcd", (1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0), strict=True):
        sample.group_index, sample.reward = group, reward
    trainer = make_trainer(disable_rewards_normalization=False)
    metrics = trainer.train(0, samples)
    assert [metrics[name] for name in ("groups", "groups_of_one", "groups_all_equal")] == [4, 2, 1]
    assert metrics["grad_norm"] > 0
    alike = make_trainer(disable_rewards_normalization=False)
    assert alike.train(0, samples[3:])["grad_norm"] == 0


def test_log_probs_and_loss_are_those_of_float64(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(8)
    trainer = make_trainer(max_tokens_per_gpu=60)
    model = AutoModelForCausalLM.from_pretrained(
        trainer.args.hf_checkpoint, dtype=torch.float64, attn_implementation="eager"
    )
    expected, loss = [], 0.0
    for sample in samples:
        logits = model(torch.tensor([sample.tokens])).logits[0].detach() / sample.temperature
        table = torch.log_softmax(logits, -1)
        places = range(sample.prompt_length, len(sample.tokens))
        expected.append([float(table[i - 1, sample.tokens[i]]) for i in places])
        loss -= (
            sum(x for x, kept in zip(expected[-1], sample.mask, strict=True) if kept) / sum(sample.mask) / 8
        )
    for found, values in zip(trainer.log_probs(samples), expected, strict=True):
        assert found == pytest.approx(values, rel=1e-5)
    metrics = make_trainer(loss_type="sft_loss", max_tokens_per_gpu=60).train(0, samples)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
