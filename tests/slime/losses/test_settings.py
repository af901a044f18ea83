"""Tests that settings of the loss library have the names and defaults of the flags."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import slime.losses
from slime.flags import Arguments
from slime.losses import (
    AdvantageSettings,
    CorrectionSettings,
    DenseDistribution,
    LossBatch,
    PolicySettings,
    TeacherSettings,
    policy_component,
    settings_of,
    topk_settings,
)

KINDS = (AdvantageSettings, CorrectionSettings, PolicySettings, TeacherSettings)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_flags_are_the_defaults_of_settings(kind: type) -> None:
    assert settings_of(kind, Arguments()) == kind()


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_follows_its_flag(kind: type) -> None:
    for name in {item.name for item in fields(kind)} & {item.name for item in fields(Arguments)}:
        changed: Any = Arguments()
        setattr(changed, name, "changed")
        assert getattr(settings_of(kind, changed), name) == "changed"


def test_settings_objects_are_used_unchanged() -> None:
    ready = PolicySettings(eps_clip=0.1)
    assert settings_of(PolicySettings, ready) is ready


def test_the_flags_of_a_hook_give_the_component_of_their_settings() -> None:
    torch.manual_seed(0)
    logits, ids = torch.randn(5, 9), torch.arange(5)
    batch = LossBatch(ids, torch.randn(5), old_log_probs=torch.full((5,), -2.0))
    flags = Arguments(eps_clip=0.05, eps_clip_high=0.3, eps_clip_c=2.0)
    by_settings = policy_component(PolicySettings(eps_clip=0.05, eps_clip_high=0.3, eps_clip_c=2.0))
    found = policy_component(flags)(DenseDistribution(logits), batch, torch.sum)
    assert found.loss == by_settings(DenseDistribution(logits), batch, torch.sum).loss
    assert topk_settings(flags, "teacher") == topk_settings(TeacherSettings(), "teacher")


def test_the_loss_library_does_not_depend_on_flag_groups() -> None:
    for path in Path(slime.losses.__path__[0]).glob("*.py"):
        assert "slime.flags" not in path.read_text() and "slime.arguments" not in path.read_text(), path.name
