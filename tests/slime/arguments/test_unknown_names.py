"""Tests that unknown names are rejected where they are used, and never taken for another name.

The parser checks the choices of a flag. These tests cover the second check: values set by code, and choices that are
added to a flag only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
import torch

from slime.arguments import Arguments
from slime.engines.client import ROUTES
from slime.engines.launch import BACKENDS
from slime.errors import ConfigError
from slime.losses import DenseDistribution, estimator
from slime.losses.component import policy_loss
from slime.losses.teacher_topk import choose_hints
from slime.ray.train_actor import TRAINERS, trainer_class
from slime.rollout.loss_masks import KINDS
from slime.tracking import display
from slime.training.attention.kernels import KERNELS, attention_name
from slime.training.core.learner import learning_rate
from slime.training.core.objective import loss_spec


def changed(**values: Any) -> Arguments:
    return Arguments(lr_decay_iters=4, lr_warmup_iters=0, **values)


@pytest.mark.parametrize(
    ("act", "flag"),
    [
        (lambda args: trainer_class(args.train_backend), "train_backend"),
        (estimator, "advantage_estimator"),
        (loss_spec, "loss_type"),
        (lambda args: learning_rate(args, 1), "lr_decay_style"),
        (attention_name, "attn_implementation"),
        (lambda args: display(args.progress, 1), "progress"),
    ],
)
def test_an_unknown_name_is_refused(act: Callable[[Arguments], object], flag: str) -> None:
    with pytest.raises(ConfigError, match="'nonesuch'; known: "):
        act(changed(**{flag: "nonesuch"}))


def test_unknown_modes_of_importance_correction_are_rejected() -> None:
    for wrong in ({"tis_mode": "nonesuch"}, {"tis_spans": "nonesuch"}):
        with pytest.raises(KeyError, match="nonesuch"):
            loss_spec(changed(use_tis=True, **wrong))


def test_losses_reject_unknown_objectives_and_selections() -> None:
    dist, ids, ones = DenseDistribution(torch.zeros(2, 4)), torch.zeros(2, dtype=torch.long), torch.ones(2)
    with pytest.raises(ValueError, match="nonesuch"):
        policy_loss(dist, ids, None, ones, torch.mean, objective="nonesuch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonesuch"):
        choose_hints(ids[None], ids[None], "nonesuch", ids)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "flag"),
    [
        (TRAINERS, "train_backend"),
        (BACKENDS, "rollout_backend"),
        (ROUTES, "rollout_backend"),
        (KINDS, "loss_mask_type"),
        (KERNELS, "attn_implementation"),
    ],
)
def test_every_choice_of_a_flag_is_implemented(table: dict[str, Any], flag: str) -> None:
    assert set(table) == set(get_args(get_type_hints(Arguments)[flag]))


def test_every_training_backend_names_the_trainer_of_its_own_package() -> None:
    assert trainer_class("fsdp") is importlib.import_module("slime.training.fsdp").FSDPTrainer
