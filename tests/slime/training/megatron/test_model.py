"""Tests one rank: the same model as transformers', weights in and out, the same training as the FSDP backend."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from slime.engines.embedded.model import ModelError, build_model
from slime.errors import CheckpointError, ConfigError, TrainError
from slime.training.core.packing import pack
from slime.types import Sample
from slime.utils.decoders import language_part
from slime.weights.probe import expected_probe, measure
from tests import ROOT
from tests.fakes.fixtures import GradientsOf, MakeArgs, MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.training.megatron.weights import WeightMap
    from slime.training.trainer import Trainer


CPU = torch.device("cpu")
OWN_LOSS = ROOT / "slime/examples/own_loss_spec/loss.py"
MODELS = [
    "qwen3",
    "qwen2",
    "llama",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_moe_sparse",
    "qwen3_5",
    "qwen3_5_vision",
]
NATIVE = MixedPrecisionPolicy()  # gradients as wide as the weights


def table(model: torch.nn.Module, sample: Sample) -> torch.Tensor:
    """Returns log-probs of every response position over the whole vocabulary, one sample alone, plain attention."""
    logits = model(torch.tensor([sample.tokens])).logits[0] / sample.temperature
    return torch.log_softmax(logits, -1)[sample.prompt_length - 1 : -1]


def plain(folder: str) -> Any:
    """Returns transformers' own model; of one with vision, the decoder, which it ties only on request."""
    config = language_part(AutoConfig.from_pretrained(folder))
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(folder, config=config, **how)


@pytest.mark.parametrize("name", MODELS)
def test_packed_log_probs_and_gradients_are_those_of_transformers(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    gradients_of: GradientsOf,
    near: Callable[[str], float],
    folders: dict[str, str],
    name: str,
) -> None:
    trainer, model = make_trainer(hf_checkpoint=folders[name]), plain(folders[name])
    samples = make_samples(3)
    packed = pack(samples, CPU, only_trained=False)
    expected = torch.cat([table(model, sample) for sample in samples])
    dist = trainer.model.distribution(packed)
    chosen = expected.gather(-1, packed.targets[:, None]).squeeze(-1)
    assert_close(dist.log_probs(packed.targets), chosen, atol=1e-5, rtol=1e-5)
    dist.log_probs(packed.targets).square().sum().backward()
    chosen.square().sum().backward()
    wanted = gradients_of(model)
    for each in trainer.learner.gradients.all:
        entry = trainer.model.weights.entries[each.name]
        mine = trainer.model.weights.separate(entry, [each.parameter.grad])
        for source, gradient in zip(entry.sources, mine, strict=True):
            assert (gradient - wanted[source]).norm() <= near(source) * wanted[source].norm(), source


@pytest.mark.parametrize("name", MODELS)
def test_weights_round_trip_through_the_backend(
    make_trainer: MakeTrainer, folders: dict[str, str], tmp_path: Path, name: str
) -> None:
    make_trainer(hf_checkpoint=folders[name]).export_weights(str(tmp_path / "out"), 1)
    ours = load_file(tmp_path / "out" / "model.safetensors")
    theirs = load_file(Path(folders[name]) / "model.safetensors")
    theirs = {key: x for key, x in theirs.items() if not key.startswith("model.visual.")}
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_an_export_gathers_one_parameter_at_a_time(
    make_trainer: MakeTrainer, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from slime.training.megatron import weights

    gathered: list[StorageWeakRef] = []

    def gather(self: WeightMap, entry: object, own: torch.Tensor) -> list[torch.Tensor]:
        part = own.clone()
        gathered.append(StorageWeakRef(part.untyped_storage()))
        return [part]

    monkeypatch.setattr(weights.WeightMap, "_all_parts", gather)
    alive = []
    for _, tensor in make_trainer(hf_checkpoint=folders[name]).whole_weights(None).tensors:
        del tensor
        alive.append(sum(not one.expired() for one in gathered))
    assert len(gathered) > 10 and max(alive) <= 2, "the present one, and at a change the one before"


@pytest.mark.parametrize(
    ("name", "lacking"), [("qwen3_moe", "mixtures of experts"), ("qwen3_5_vision", "recurrent state")]
)
def test_the_embedded_engine_reports_unsupported_models(
    folders: dict[str, str], name: str, lacking: str
) -> None:
    with pytest.raises(ModelError, match=f"does not support (the )?{lacking}.*; use SGLang"):
        build_model(folders[name], "cpu", "float32")


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_5_vision"])
def test_the_probe_supports_every_model(folders: dict[str, str], name: str) -> None:
    expected = measure(plain(folders[name]), folders[name], 63)
    assert expected_probe(folders[name]).gap(expected.log_probs) < 1e-5


JOBS: dict[str, dict[str, Any]] = {
    "policy": {"weight_decay": 0.1},
    "steps_with_kl": {"global_batch_size": 2, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k3"},
    "whitened": {
        "advantage_estimator": "reinforce_plus_plus",
        "normalize_advantages": True,
        "kl_coef": 0.1,
        "ref_update_interval": 1,
        "calculate_per_token_loss": True,
    },
    "entropy_in_bf16": {"entropy_coef": 0.1, "bf16": True, "gradient_checkpointing": True},
    "sft": {"loss_type": "sft_loss"},
    "gspo": {"advantage_estimator": "gspo", "global_batch_size": 3},
    "opd_topk": {
        "loss_spec_path": "openclaw_opd.loss:opd_topk",
        "distill_topk": 4,
        "distill_subset_mode": "student",
    },
    "topk_select": {
        "loss_spec_path": "openclaw_combine.loss:topk_select",
        "distill_topk": 4,
        "distill_subset_mode": "overlap",
    },
    "combine": {"loss_spec_path": "openclaw_combine.loss:combine"},
    "a_method_of_ones_own": {
        "loss_spec_path": str(OWN_LOSS),
        "distill_topk": 4,
        "distill_subset_mode": "teacher",
        "jsd_w_rl": 1.0,
        "global_batch_size": 3,
    },
    "experts": {
        "hf_checkpoint": "qwen3_moe",
        "ref_load": "qwen3_moe",
        "use_kl_loss": True,
        "kl_loss_coef": 0.1,
    },
    "hybrid": {
        "hf_checkpoint": "qwen3_5_vision",
        "ref_load": "qwen3_5_vision",
        "loss_spec_path": "openclaw_combine.loss:combine",
        "recompute_granularity": "selective",
        "recompute_modules": "core_attn,mlp",
    },
    "hybrid_in_bf16": {"hf_checkpoint": "qwen3_5", "bf16": True, "gradient_checkpointing": True},
    "experts_in_bf16": {"hf_checkpoint": "qwen3_moe_sparse", "bf16": True, "gradient_checkpointing": True},
}


def taught(samples: list[Any]) -> list[Any]:
    """Returns every sample with a hint before its prompt."""
    for sample in samples:
        sample.teacher_tokens_candidates = [[5, 9, *sample.tokens]]
    return samples


@pytest.mark.parametrize("name", JOBS)
def test_two_rollouts_give_the_metrics_and_weights_of_fsdp(
    make_trainer: MakeTrainer, make_samples: MakeSamples, folders: dict[str, str], tmp_path: Path, name: str
) -> None:
    changes = {"teacher_source": "trainer", "hint_m": 1} | JOBS[name]
    changes |= {key: folders[changes[key]] for key in ("hf_checkpoint", "ref_load") if key in changes}
    tolerance = 3e-2 if changes.get("bf16") else 1e-4
    # In bf16 a first step of 1e-3 separates the models so far that their next gradients differ by tens of percent.
    rate = 1e-5 if changes.get("bf16") else 1e-3
    found = {}
    for backend in ("fsdp", "megatron"):
        trainer = make_trainer(train_backend=backend, lr=rate, **changes)
        metrics = [trainer.train(i, taught(make_samples(6, seed=i))) for i in range(2)]
        trainer.export_weights(str(tmp_path / backend), 1)
        found[backend] = metrics, load_file(tmp_path / backend / "model.safetensors")
    for ours, theirs in zip(found["megatron"][0], found["fsdp"][0], strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - {"train_seconds"}:
            assert ours[key] == pytest.approx(theirs[key], abs=tolerance, rel=tolerance), key
    # versions of a bf16 run are exported in bf16, where 1 and the next number are 2^-7 apart
    close = {"atol": 5e-3, "rtol": 2**-7} if changes.get("bf16") else {"atol": 1e-5, "rtol": 1e-3}
    for key, tensor in found["fsdp"][1].items():
        assert_close(found["megatron"][1][key], tensor, **close)


def first_gradients(
    trainer: Trainer, samples: list[Any], gradients_of: GradientsOf
) -> dict[str, torch.Tensor]:
    """Returns the gradient of every weight as the optimizer would get it, by the names of Hugging Face's folders."""
    found: dict[str, torch.Tensor] = {}

    def keep() -> None:
        if trainer.backend == "fsdp":
            found.update(gradients_of(trainer.model))
            return
        for each in trainer.learner.gradients.all:
            entry = trainer.model.weights.entries[each.name]
            found.update(
                zip(entry.sources, trainer.model.weights.separate(entry, [each.gradient]), strict=True)
            )

    trainer.learner.move = keep
    trainer.train(0, samples)
    return {name: gradient.clone() for name, gradient in found.items()}


@pytest.mark.parametrize("name", ["qwen3", "qwen2_moe", "qwen3_moe", "qwen3_5"])
def test_the_first_gradients_are_those_of_fsdp(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    gradients_of: GradientsOf,
    folders: dict[str, str],
    name: str,
) -> None:
    ours, theirs = (
        first_gradients(
            make_trainer(train_backend=backend, clip_grad=0.0, hf_checkpoint=folders[name]),
            make_samples(6),
            gradients_of,
        )
        for backend in ("megatron", "fsdp")
    )
    assert ours.keys() == theirs.keys()
    for key, gradient in theirs.items():
        assert (ours[key] - gradient).norm() <= 1e-5 * gradient.norm(), key


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "qwen3_5"])
def test_in_float64_both_backends_have_the_same_training_curves(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    folders: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    from slime.training.fsdp import loading as fsdp
    from slime.training.megatron import loading as megatron

    original = AutoModelForCausalLM.from_pretrained

    def wide(folder: str, **how: object) -> Any:
        return original(folder, **how | {"dtype": torch.float64, "experts_implementation": "eager"})

    monkeypatch.setattr(fsdp, "open_shards", lambda *_, **__: None)  # they would fill in fp32
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", wide)
    monkeypatch.setattr(fsdp, "MixedPrecisionPolicy", lambda **_: NATIVE)
    monkeypatch.setattr(megatron, "computing_dtype", lambda *_: torch.float64)
    curves = {}
    for backend in ("fsdp", "megatron"):
        model = {"hf_checkpoint": folders[name]}
        trainer = make_trainer(train_backend=backend, lr=1e-3, global_batch_size=2, **model)
        curves[backend] = [trainer.train(i, make_samples(4, seed=i)) for i in range(10)]
    for ours, theirs in zip(curves["megatron"], curves["fsdp"], strict=True):
        for key in ("loss", "grad_norm", "ppo_kl"):
            assert ours[key] == pytest.approx(theirs[key], abs=1e-6, rel=1e-6), key


@pytest.mark.parametrize(("name", "bf16"), [("qwen3", False), ("qwen3", True), ("qwen3_5", True)])
def test_a_resumed_run_equals_an_uninterrupted_one(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    folders: dict[str, str],
    tmp_path: Path,
    name: str,
    bf16: bool,
) -> None:
    model = folders[name]
    changes = {
        "hf_checkpoint": model,
        "ref_load": model,
        "bf16": bf16,
        "use_kl_loss": True,
        "kl_loss_coef": 0.1,
        "ref_update_interval": 1,
    }
    whole = make_trainer(**changes)
    whole.train(0, make_samples(6))
    whole.save(0, 1, 0)
    whole.train(1, make_samples(6, seed=1))
    resumed = make_trainer(**changes)
    state = resumed.load()
    assert (state.rollout_id, state.version, resumed.global_step) == (0, 1, 1)
    resumed.train(1, make_samples(6, seed=1))
    checksums = [one.export_weights(str(tmp_path / "out"), 2) for one in (whole, resumed)]
    assert checksums[0] == checksums[1]


def test_a_checkpoint_of_the_other_backend_is_refused(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = make_trainer(train_backend="fsdp")
    trainer.train(0, make_samples(2))
    trainer.save(0, 1, 0)
    with pytest.raises(CheckpointError, match="written by --train-backend fsdp"):
        make_trainer().load()


def test_a_non_finite_step_is_rejected_and_changes_nothing(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = make_trainer()
    before = trainer.export_weights(str(tmp_path / "before"), 1)
    with pytest.raises(TrainError, match="rollout 0, step 0: the loss is"):
        trainer.train(0, make_samples(2, reward=3e38))
    assert trainer.export_weights(str(tmp_path / "after"), 1) == before
    assert trainer.global_step == 0


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "gpt2"}, "its model_type is gpt2"),
    ({"model_type": "qwen3_5_moe_text"}, "its model_type is qwen3_5_moe_text"),
    ({"hidden_act": "gelu"}, "its hidden_act is gelu"),
    ({"attention_bias": True}, "output projection"),
    (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "a part",
    ),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}, "its rope_type is yarn"),
    ({"intermediate_size": 40}, "does not have the shape of config.json"),
    ({"num_hidden_layers": 3}, "lacks model.layers.2"),
]


@pytest.mark.parametrize(("change", "complaint"), BROKEN)
def test_a_model_that_cannot_be_built_is_refused(
    make_trainer: MakeTrainer, folders: dict[str, str], tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    folder = shutil.copytree(folders["qwen3"], tmp_path / "other")
    config = json.loads((folder / "config.json").read_text()) | change
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=complaint):
        make_trainer(hf_checkpoint=str(folder))


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        (
            {"tensor_model_parallel_size": 4},
            r"num_key_value_heads \(2\) is not divisible by 4 .*-size \(TRAIN_TP\) or",
        ),
        ({"tensor_model_parallel_size": 2, "context_parallel_size": 2}, r"num_key_value_heads \(2\)"),
        (
            {"pipeline_model_parallel_size": 3},
            r"num_hidden_layers \(2\) is not divisible by 3 .* --pipeline-model-parallel-size",
        ),
        ({"expert_model_parallel_size": 2}, "qwen3 has none"),
        (
            {"use_lora": True, "hf_checkpoint": "qwen2_moe"},
            "does not support adapters on the shared experts of qwen2_moe",
        ),
        (
            {"tensor_model_parallel_size": 2, "hf_checkpoint": "one_key_head"},
            r"linear_num_key_heads \(1\) is not divisible by 2 tensor x context",
        ),
        (
            {"expert_model_parallel_size": 3, "hf_checkpoint": "qwen3_moe"},
            r"num_experts \(4\) is not divisible",
        ),
    ],
)
def test_ranks_that_do_not_divide_the_model_are_refused(
    make_args: MakeArgs, folders: dict[str, str], sizes: dict[str, Any], complaint: str
) -> None:
    from slime.training.megatron.core_config import read_config, transformer_config

    with pytest.raises(ConfigError, match=complaint):
        name = sizes.get("hf_checkpoint", "qwen3")
        config = read_config(folders[name if name in folders else "qwen3_5"])
        config.linear_num_key_heads = 1 if name == "one_key_head" else 2
        transformer_config(config, make_args(**sizes), torch.float32)


def test_gathered_tokens_need_no_communication_in_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from slime.training.megatron import attention

    def copies(whole: torch.Tensor, mine: torch.Tensor, group: object) -> None:
        for part in whole.chunk(3):
            part.copy_(mine)

    monkeypatch.setattr(attention, "all_gather", copies)
    group = SimpleNamespace(size=lambda: 3, rank=lambda: 1)
    mine = torch.ones(2, 4, requires_grad=True)
    weights = torch.arange(24.0).view(6, 4)
    (attention.gather_tokens(mine, group) * weights).sum().backward()  # type: ignore[arg-type]
    assert mine.grad is not None and torch.equal(mine.grad, 3 * weights[2:4])


def test_a_layer_stores_no_unneeded_activations(
    make_trainer: MakeTrainer, make_samples: MakeSamples, folders: dict[str, str]
) -> None:
    trainer = make_trainer(hf_checkpoint=folders["qwen3"])
    packed, asked = pack(make_samples(3), CPU), []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append((func.overloadpacket._qualified_op_name, args))
            return func(*args, **(kwargs or {}))

    with Watch():
        trainer.model.distribution(packed)
    turns = [name for name, _ in asked if name in ("aten::cos", "aten::sin")]
    assert len(turns) == 2, "once a pack, whatever the number of layers"
    sums = [args for name, args in asked if name == "aten::add" and args[0].shape[-1:] == (48,)]
    assert not sums


def test_a_mixture_without_other_ranks_has_no_value_dependent_shapes(
    make_trainer: MakeTrainer, folders: dict[str, str]
) -> None:
    trainer = make_trainer(hf_checkpoint=folders["qwen3_moe"], bf16=True)
    mixture = trainer.model.core.decoder.layers[0].mlp
    with FakeTensorMode(allow_non_fake_inputs=True):  # which rejects shapes that depend on values
        output, _ = mixture(torch.empty(10, 1, 32, dtype=torch.bfloat16))
    assert output.shape == (10, 1, 32)
