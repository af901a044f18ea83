"""Tiny models, arguments and samples for the Megatron backend. Without megatron-core all these tests are skipped."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.core_model_loading import revert_weight_conversion

from slime.arguments import Arguments
from slime.types import Sample
from tests.fakes.fixtures import RunRanks
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


VOCABULARY = 63  # not divisible by two
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.fixture(scope="session")
def megatron_forks() -> Iterator[Forks]:
    forks = Forks("slime.training.megatron")
    yield forks
    forks.close()


@pytest.fixture
def run_ranks(tmp_path: Path, megatron_forks: Forks) -> RunRanks:
    """f(script): runs a script, whose work(rank) reads `order` and writes `result0` to `result3` in its folder, in
    four processes; returns these results."""

    def run(script: str, order: Any) -> list[Any]:
        (tmp_path / "order").write_bytes(pickle.dumps(order))
        ranks = ([tmp_path, rank] for rank in range(4))
        megatron_forks.run(script + "\nwork(int(sys.argv[2]))\n", tmp_path, *ranks)
        return [pickle.loads((tmp_path / f"result{rank}").read_bytes()) for rank in range(4)]

    return run


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def needs_megatron() -> None:
    """Not at collection: each process of a run collects these tests, and one runs them."""
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: see requirements-dev.txt")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns a random model of each architecture: tied and untied, with biases, without query norms, with long
    rotations; mixtures of experts with some dense layers, their weights scaled to 1 or not; linear next to full
    attention, alone or in a model with vision."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
    }
    experts: dict[str, Any] = shape | {"head_dim": 8, "num_experts": 4, "num_hidden_layers": 4}
    hybrid: dict[str, Any] = shape | {
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "layer_types": ["linear_attention", "full_attention"],
    }
    more = {"num_key_value_heads": 4, "linear_num_key_heads": 4}
    seen = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 32}
    models: dict[str, Any] = {
        "qwen3_5": Qwen3_5ForCausalLM(Qwen3_5TextConfig(tie_word_embeddings=False, **hybrid)),
        "qwen3_5_vision": Qwen3_5ForConditionalGeneration(
            Qwen3_5Config(text_config=hybrid | more, vision_config=seen, tie_word_embeddings=True)
        ),
        "qwen3_moe": Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                moe_intermediate_size=24,
                norm_topk_prob=True,
                num_experts_per_tok=2,
                mlp_only_layers=[2],
                tie_word_embeddings=False,
                **experts,
            )
        ),
        "qwen3_moe_sparse": Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                moe_intermediate_size=16,
                norm_topk_prob=False,
                num_experts_per_tok=3,
                decoder_sparse_step=2,
                tie_word_embeddings=True,
                **experts,
            )
        ),
        "qwen2_moe": Qwen2MoeForCausalLM(
            Qwen2MoeConfig(
                moe_intermediate_size=16,
                shared_expert_intermediate_size=24,
                num_experts=4,
                num_experts_per_tok=2,
                tie_word_embeddings=False,
                **shape,
            )
        ),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(head_dim=8, tie_word_embeddings=True, **shape)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=False, **shape)),
        "llama": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, rope_parameters=LLAMA3, **shape)),
    }
    found = {}
    for name, model in models.items():
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            if key.endswith("dt_bias"):
                torch.nn.init.uniform_(parameter)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        (folder / "tokenizer_config.json").write_text("{}")
        found[name] = str(folder)
    return found


@pytest.fixture
def gradients_of() -> Callable[[Any], dict[str, torch.Tensor]]:
    def of(model: PreTrainedModel) -> dict[str, torch.Tensor]:
        """Returns the tensors of a transformers model by the names in its folder: in memory, all experts are one
        tensor."""
        grads = ((name, parameter.grad) for name, parameter in model.named_parameters())
        found = {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in grads}
        return dict(revert_weight_conversion(model, found))

    return of


@pytest.fixture
def near() -> Callable[[str], float]:
    """f(name of a weight): the permitted relative difference of its gradient from one with another order of
    summation. Those of a state's decay are small differences of large sums, in fp32."""
    decay = ("A_log", "dt_bias", "in_proj_a.weight")
    return lambda name: 1e-4 if name.endswith(decay) else 1e-5


@pytest.fixture
def make_args(folders: dict[str, str], training_args: Callable[..., Arguments]) -> Callable[..., Arguments]:
    common = {
        "model_folder": folders["qwen3"],
        "train_backend": "megatron",
        "lr": 1e-2,
        "max_tokens_per_gpu": 40,
    }
    return lambda **changes: training_args(**(common | changes))


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    return build_samples


def build_samples(count: int = 6, seed: int = 0, **changes: object) -> list[Sample]:
    """Returns samples in groups of two with one prompt each, masks of several segments and different temperatures."""
    rng = random.Random(seed)
    samples, prompt = [], [0]
    for index in range(count):
        if index % 2 == 0:
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 9))]
        response = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 10))]
        mask = [rng.choice((0, 1, 1)) for _ in response]
        mask[-1] = 1
        values: dict[str, Any] = {
            "index": index,
            "group_index": index // 2,
            "tokens": prompt + response,
            "response_length": len(response),
            "loss_mask": mask,
            "reward": rng.choice((1.0, -1.0)),
            "temperature": rng.choice((0.6, 1.0, 1.3)),
        }
        samples.append(Sample(**(values | changes)))
    return samples
