"""Compares the planner's bytes with those of the project's own modules: `bash lab/run.sh
benchmarks.trainer.plan_vs_tracker`.

One training step (forward, backward, gradients) of one rank runs on fake tensors, which have shapes and no memory, in
a fake process group, and torch's memory tracker sums the live tensors. A stand-in for attention keeps the same
tensors as FlashAttention. AdamW's two moments are added: they are created in the first step, when nothing else is in
memory. The planner's allowance for runtime and fragmentation is excluded, since the tracker cannot measure it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from slime.arguments import Arguments
from slime.losses import dense
from slime.plan.division import Division
from slime.plan.hardware import GIB
from slime.plan.memory import TrainerMemory, trainer_parts
from slime.plan.shape import KNOWN, shape_of
from slime.training.attention.kernels import SDPA
from slime.training.attention.linear import keep_sequences_apart
from slime.training.core.packing import PackedBatch, pack
from slime.training.fsdp.loading import shard, switch_off_dropout
from slime.training.fsdp.model import equip
from slime.types import Sample

LENGTH = 8192  # tokens of one sample of a pack
RUNTIME = "runtime and fragments"
LAYOUTS = (
    ("Qwen3-0.6B", {"gpus": 2, "tokens": 4096}),
    ("Qwen3-1.7B", {"gpus": 4, "tokens": 8192, "rows": 1024, "checkpointing": True}),
    ("Qwen3-4B", {"gpus": 4, "tokens": 16384, "rows": 1024, "checkpointing": True}),
    ("Qwen3-4B", {"gpus": 4, "tokens": 32768, "rows": 1024, "checkpointing": True}),
    ("Qwen3-8B", {"gpus": 4, "tokens": 32768, "rows": 1024, "checkpointing": True}),
    ("Qwen2.5-7B", {"gpus": 8, "tokens": 16384, "checkpointing": True}),
    ("Llama-3.1-8B", {"gpus": 8, "tokens": 8192, "rows": 1024}),
    ("Qwen3-0.6B", {"gpus": 2, "tokens": 4096, "entropy": True, "checkpointing": True}),
    ("Qwen3-4B", {"gpus": 4, "tokens": 32768, "checkpointing": True, "tp": 2}),
    ("Qwen3-8B", {"gpus": 8, "tokens": 16384, "checkpointing": True, "tp": 4, "distributed": True}),
    ("Llama-3.1-8B", {"gpus": 8, "tokens": 8192, "tp": 4}),
    ("Qwen3-4B", {"gpus": 4, "tokens": 32768, "rows": 1024, "checkpointing": True, "tp": 2}),
    ("Qwen3-8B", {"gpus": 8, "tokens": 8192, "rows": 1024, "tp": 4}),
    ("Qwen2.5-7B", {"gpus": 4, "tokens": 32768, "rows": 1024, "checkpointing": True, "tp": 2}),
    ("Qwen3-30B-A3B", {"gpus": 4, "tokens": 32768, "rows": 1024, "checkpointing": True, "tp": 2}),
)
MODELS = tuple(dict.fromkeys(name for name, _ in LAYOUTS if "A3B" not in name))
EACH: tuple[dict[str, Any], ...] = (
    {"gpus": 4, "tokens": 16384, "rows": 1024, "checkpointing": True},
    {"gpus": 8, "tokens": 8192, "rows": 1024},
    {"gpus": 4, "tokens": 16384, "checkpointing": True, "tp": 2},
    {"gpus": 8, "tokens": 8192, "tp": 4, "distributed": True},
)
"""Layouts that --each plans for each model."""


class KeptAsFlash(torch.autograd.Function):
    """Keeps queries, keys, values, output and the normaliser, as FlashAttention does; computes nothing."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = query.new_empty(query.shape[0], query.shape[2], query.shape[1], query.shape[3]).transpose(1, 2)
        normaliser = query.new_empty(query.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, rows, normaliser)
        return rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors[:3])


def stand_in(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Any:
    output: Tensor = KeptAsFlash.apply(query, key, value)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2).contiguous(), None


def planned(plan: TrainerMemory) -> float:
    """Returns the planner's bytes, without the parts that the tracker cannot measure."""
    return sum(size for name, size in trainer_parts(plan).items() if name != RUNTIME)


def measured(config: dict[str, Any], plan: TrainerMemory) -> float:
    """Returns the tracker's bytes of one rank of a model."""
    with tempfile.TemporaryDirectory() as folder, pretended_group(plan.gpus):
        Path(folder, "config.json").write_text(json.dumps(config))
        run = fsdp_step if plan.division is None else megatron_step
        return run(folder, plan)


@contextmanager
def pretended_group(size: int) -> Iterator[None]:
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    original = AttentionInterface._global_mapping[SDPA]
    AttentionInterface.register(SDPA, stand_in)
    try:
        yield
    finally:
        AttentionInterface.register(SDPA, original)
        dist.destroy_process_group()
        gc.collect()


def in_blocks_of_a_gpu() -> AbstractContextManager[object]:
    """Lets losses compute as many logits at a time as on a GPU."""
    return patch.object(dense, "BLOCK_CPU", dense.BLOCK_GPU)


def fsdp_step(folder: str, plan: TrainerMemory) -> float:
    args = Arguments(hf_checkpoint=folder, bf16=True)
    mesh = init_device_mesh("cpu", (plan.gpus,))
    with FakeTensorMode(allow_non_fake_inputs=True), in_blocks_of_a_gpu():
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder, trust_remote_code=False),
            dtype=torch.float32,
            attn_implementation=SDPA,
        )
        keep_sequences_apart(model, folder)
        switch_off_dropout(model)
        model.train()
        if plan.checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        equipped = equip(model, plan.rows)
        shard(model, mesh, args)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        packed = samples_of(plan.tokens)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((packed.input_ids,))
        with tracker:
            for parameter in model.parameters():  # gradients of the micro-batches before
                parameter.grad = torch.zeros_like(parameter)
            loss_of(equipped.distribution(packed), packed, plan.entropy).backward()
        moments = 8.0 * plan.shape.parameters / plan.gpus
        return peak(tracker) + moments


def megatron_step(folder: str, plan: TrainerMemory) -> float:
    from megatron.core import parallel_state

    from slime.training.megatron import attention
    from slime.training.megatron.core_config import read_config, transformer_config
    from slime.training.megatron.model import PackedGPT
    from slime.training.megatron.parallel import divide
    from slime.training.megatron.pipeline import ShardedModel
    from slime.training.megatron.trainer import MegatronLearner
    from slime.training.megatron.weights import WeightMap

    division = plan.division
    assert division is not None
    args = Arguments(
        hf_checkpoint=folder,
        bf16=True,
        train_backend="megatron",
        tensor_model_parallel_size=division.tp,
        sequence_parallel=division.sequence_parallel,
        use_distributed_optimizer=division.distributed_optimizer,
        log_probs_chunk_size=plan.rows or -1,
        gradient_checkpointing=plan.checkpointing,
    )
    without_gloo = partial(parallel_state.initialize_model_parallel, create_gloo_process_groups=False)
    with (
        patch.object(parallel_state, "initialize_model_parallel", without_gloo),
        patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")),
        patch.dict(attention.KERNELS, dict.fromkeys(attention.KERNELS, stand_in)),
        FakeTensorMode(allow_non_fake_inputs=True),
        in_blocks_of_a_gpu(),
    ):
        parallel = divide(args)
        hf = read_config(folder)
        core = PackedGPT(hf, transformer_config(hf, args, torch.bfloat16), parallel, args)
        model = ShardedModel(core, WeightMap(core, hf))
        learner = MegatronLearner(model, args)
        packed = samples_of(plan.tokens)
        head = core._modules.pop("output_layer")
        assert head is not None
        # The tracker counts only one call of a module in a step
        object.__setattr__(core, "output_layer", head.forward)
        tracker = MemTracker()
        tracker.track_external(core, head, learner.optimizer, packed.input_ids)
        with tracker:
            model.train_step([packed], lambda number, pack, seen: loss_of(seen, pack, plan.entropy))
            tracker.reset_mod_stats()  # the gradients of the micro-batch before stay
            learner.accumulate([packed], lambda number, pack, seen: loss_of(seen, pack, plan.entropy))
        masters_and_moments = 12.0 * sum(p.numel() for p in learner.gradients.masters.parameters)
        return peak(tracker) + masters_and_moments


def samples_of(tokens: int) -> PackedBatch:
    """Returns a pack in which every token is trained, and runs."""
    each = min(tokens, LENGTH)
    samples = [
        Sample(index=i, tokens=[1] * each, response_length=each - 1, loss_mask=[1] * (each - 1))
        for i in range(tokens // each)
    ]
    return pack(samples, torch.device("cpu"), merge=False)


def loss_of(seen: Any, packed: PackedBatch, entropy: bool) -> Tensor:
    loss: Tensor = -seen.log_probs(packed.targets).mean()
    return loss - seen.entropy().mean() if entropy else loss


def peak(tracker: Any) -> float:
    """Returns the bytes on all devices together."""
    snapshot = tracker.get_tracker_snapshot("peak")
    return float(sum(sizes["Total"] for sizes in snapshot.values()))


def plan_of(config: dict[str, Any], name: str, layout: dict[str, Any]) -> TrainerMemory:
    values = dict(layout)
    division = None
    if tp := values.pop("tp", 0):
        division = Division(
            tp, sequence_parallel=True, distributed_optimizer=values.pop("distributed", False)
        )
    return replace(TrainerMemory(shape_of(config, name), 1, 1), division=division, **values)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*", type=int, help="numbers of the layouts (default: all)")
    parser.add_argument("--each", action="store_true", help="plan each model in the same four layouts")
    parser.add_argument("--layers", type=int, default=0, help="number of layers, instead of the model's")
    parser.add_argument("--experts", type=int, default=0, help="number of experts, instead of the model's")
    args = parser.parse_args()
    torch.set_num_threads(1)
    layouts = tuple((name, layout) for name in MODELS for layout in EACH) if args.each else LAYOUTS
    for number in args.numbers or range(len(layouts)):
        name, layout = layouts[number]
        config = KNOWN[name] | ({"num_hidden_layers": args.layers} if args.layers else {})
        if args.experts and "num_experts" in config:
            config["num_experts"] = args.experts
        plan = plan_of(config, name, layout)
        by_tracker, by_plan = measured(config, plan), planned(plan)
        print(
            f"| {number} {name} | {layout} | {by_tracker / GIB:.2f} | {by_plan / GIB:.2f} | {by_plan / by_tracker:.3f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
