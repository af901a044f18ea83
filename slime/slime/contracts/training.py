"""Inputs and required results of trainer hooks in a contract test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from slime.contracts.examples import VOCABULARY, example_groups
from slime.errors import ConfigError
from slime.losses import (
    DenseDistribution,
    TopKTargets,
    compute_loss,
    load_custom_loss,
    pack_loss,
    sample_loss,
)
from slime.losses.formula import weighted_sum
from slime.training.core.batch import TrainBatch, token_advantages
from slime.training.core.objective import custom_config, loss_spec
from slime.training.core.packing import pack
from slime.training.core.step import loss_batch, step_reducer
from slime.training.core.user_hooks import custom_batch, postprocess
from slime.training.schedule import ScheduleLimits, build_schedule
from slime.types import Sample, flatten

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.hooks import HookArguments
    from slime.flags.loss import LossArguments
    from slime.flags.sides import ObjectiveSide


def _samples() -> list[Sample]:
    return list(flatten(example_groups()))


def _data() -> TrainBatch:
    samples = _samples()
    trained = {i: [-0.6] * sample.effective_response_length for i, sample in enumerate(samples)}
    advantages = {i: torch.ones(len(values)) for i, values in trained.items()}
    return TrainBatch(
        samples, advantages=advantages, ref_log_probs=dict(trained), old_log_probs=dict(trained)
    )


def _postprocess(args: HookArguments, function: Callable[..., object], path: str) -> None:
    data = _data()
    lengths = [len(sample.tokens) for sample in data.samples]
    trained = [sample.effective_response_length for sample in data.samples]
    schedule = build_schedule(lengths, trained, ScheduleLimits(world_size=1, max_tokens=64))
    postprocess(args, 0, data, schedule, rank=0)


def _spec(args: Arguments, function: Callable[..., object], path: str) -> None:
    """Runs the components with random logits; a teacher, if required, has different ones."""
    args.loss_spec_path = path
    spec = loss_spec(args)
    if spec.on_logits is not None:
        _differentiable(*_pack_loss(args, spec.on_logits))
        return
    data, device = _data(), torch.device("cpu")
    packed, everyone = pack(data.samples, device), tuple(range(len(data.samples)))
    count = int(packed.targets.numel())
    torch.manual_seed(0)
    leaf = torch.randn(count, VOCABULARY, requires_grad=True)
    student, teacher = DenseDistribution(leaf), DenseDistribution(torch.randn(count, VOCABULARY))
    batch = loss_batch(everyone, packed, data, float(len(data.samples)), args.reward_key)
    if spec.teacher == "sampled":
        log_probs = teacher.log_probs(packed.targets)
        batch = replace(batch, teacher_log_probs=log_probs, taught=torch.ones(count, dtype=torch.bool))
    elif spec.teacher == "topk":
        batch = replace(batch, targets=_targets(student, teacher))
    reducer = step_reducer(float(len(data.samples)), packed, per_token=False)
    _differentiable(compute_loss(spec, student, batch, reducer).loss, leaf)


def _targets(student: DenseDistribution, teacher: DenseDistribution) -> TopKTargets:
    """Returns one hint a token, over four likely ids of the student."""
    own, ids = student.topk(4)
    number = len(ids)
    nobody = torch.zeros(number, dtype=torch.long)
    valid = torch.ones_like(ids, dtype=torch.bool)
    return TopKTargets(ids, valid, own.detach(), teacher.log_probs(ids), nobody, nobody)


def _loss(args: Arguments, function: Callable[..., object], path: str) -> None:
    function, signature = load_custom_loss(path)
    if signature == "spec":
        _spec(args, function, path)
        return
    _differentiable(*(_sample_loss(args, function) if signature == "sample" else _pack_loss(args, function)))


def _differentiable(loss: torch.Tensor, leaf: torch.Tensor) -> None:
    _expect(bool(torch.isfinite(loss)), f"returned a loss of {float(loss.detach())}")
    _expect(loss.requires_grad, "returned a loss that does not depend on the policy; do not detach it")
    loss.backward()  # type: ignore[no-untyped-call]
    _expect(
        leaf.grad is not None and bool(torch.isfinite(leaf.grad).all()), "has a gradient that is not finite"
    )


def _sample_loss(args: LossArguments, function: Callable[..., object]) -> tuple[Any, Any]:
    policy = torch.full((5,), -0.7, requires_grad=True)
    reference, reward = torch.full((5,), -0.8), torch.tensor(1.0)
    return sample_loss(function, custom_config(args), policy, reference, reward, torch.ones(5)), policy


def _pack_loss(args: Arguments, function: Callable[..., object]) -> tuple[Any, Any]:
    data, device = _data(), torch.device("cpu")
    samples = list(data.samples)
    everyone = tuple(range(len(samples)))
    packed = pack(samples, device, merge=False)
    torch.manual_seed(0)
    leaf = torch.randn(1, int(packed.input_ids.numel()), VOCABULARY, requires_grad=True)
    batch = custom_batch(samples, everyone, packed, data, device)
    masks: list[Any] = batch["loss_masks"]
    reducer = weighted_sum(torch.cat([mask / mask.sum() for mask in masks]))
    return pack_loss(function, args, batch, leaf, reducer)[0], leaf


def _advantages(args: ObjectiveSide, function: Callable[..., object], path: str) -> None:
    data = _data()
    advantages = token_advantages(args, data, list(range(len(data.samples))), lambda values: values)
    _expect(
        all(bool(torch.isfinite(values).all()) for values in advantages.values()),
        "set advantages that are not finite",
    )


def _tis(args: Arguments, function: Callable[..., Any], path: str) -> None:
    samples = _samples()
    lengths = [sample.response_length for sample in samples]
    pg_loss = torch.ones(sum(lengths))
    masks = [torch.tensor(sample.mask, dtype=torch.float32) for sample in samples]
    returned = function(
        args=args,
        pg_loss=pg_loss,
        train_log_probs=[torch.full((length,), -0.6) for length in lengths],
        rollout_log_probs=[torch.tensor(sample.rollout_log_probs) for sample in samples],
        loss_masks=masks,
        total_lengths=[len(sample.tokens) for sample in samples],
        response_lengths=lengths,
    )
    _expect(isinstance(returned, tuple) and len(returned) == 3, "must return (pg_loss, loss_masks, metrics)")
    after, new_masks, metrics = returned
    _expect(
        getattr(after, "shape", None) == pg_loss.shape, "must return a pg_loss of the shape that it was given"
    )
    _expect([len(mask) for mask in new_masks] == lengths, "must return one mask of response_length a sample")
    _expect(isinstance(metrics, dict), "must return its metrics as a dictionary")


def _reducer(args: Arguments, function: Callable[..., Any], path: str) -> None:
    samples = _samples()
    lengths = [sample.response_length for sample in samples]
    masks = [torch.tensor(sample.mask, dtype=torch.float32) for sample in samples]
    reduce = function([len(sample.tokens) for sample in samples], lengths, masks, False)
    _expect(callable(reduce), f"returned a {type(reduce).__name__}; it must be a function")
    values = torch.ones(sum(lengths), requires_grad=True)
    total = reduce(values)
    _expect(getattr(total, "numel", lambda: 0)() == 1, "made a reducer that does not return one number")
    _expect(total.requires_grad, "made a reducer through which no gradient flows")


def _expect(kept: bool, message: str) -> None:
    if not kept:
        raise ConfigError(message)


TRIALS: dict[str, Callable[[Any, Any, str], None]] = {
    "rollout_data_postprocess_path": _postprocess,
    "loss_spec_path": _spec,
    "custom_loss_function_path": _loss,
    "custom_advantage_function_path": _advantages,
    "custom_tis_function_path": _tis,
    "custom_pg_loss_reducer_function_path": _reducer,
}
