"""Flags of the hooks: declared once, validated when read, and consistent with the trainer's flags."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from claw_base.settings.declare import flags_of
from openclaw.errors import ConfigError
from openclaw.settings import Settings
from openclaw.trainer_hooks import lease, pipeline, services
from openclaw.trainer_hooks.arguments import BufferArguments, HookSettings, TrainerFlags
from slime.arguments import Arguments
from tests.fakes.hook_flags import hook_flags, hook_settings


def test_every_flag_of_the_trainer_that_hooks_read_exists() -> None:
    names = {item.name for item in dataclasses.fields(Arguments)}
    assert {item.name for item in dataclasses.fields(TrainerFlags)} <= names


def test_a_trainer_without_a_required_flag_fails_at_once() -> None:
    flags = vars(hook_flags())
    del flags["max_staleness"]
    with pytest.raises(AttributeError, match="max_staleness"):
        HookSettings.of(SimpleNamespace(**flags))


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_timeout": 0.0},
        {"batch_timeout": float("nan")},
        {"session_ttl": 0.0},
        {"retention_days": float("inf")},
        {"max_person_share": 0.0},
        {"max_person_share": 1.5},
        {"replay_steps": 65},
        {"replay_samples": 0},
        {"replay_window": 4097},
        {"anchor_share": 8.5},
        {"trust": "facts", "trust_bar": 1.0},
        {"probation_false_alarms": 0.0},
        {"echo_longest": 0},
    ],
)
def test_an_out_of_range_number_is_rejected_with_its_flag(wrong: dict[str, Any]) -> None:
    name = list(wrong)[-1]
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} must be"):
        hook_settings(**wrong)


def test_session_ttl_is_the_gateways_setting_and_no_variable_sets_the_store() -> None:
    (gateways,) = (item for item in flags_of(Settings) if item.name == "session_ttl")
    (own,) = (item for item in flags_of(BufferArguments) if item.name == "session_ttl")
    assert own == gateways and own.env == ("SESSION_TTL",)
    assert not any(item.env for item in flags_of(BufferArguments) if item.name.startswith("rl_buffer"))


def test_no_flag_is_declared_by_two_groups() -> None:
    names = [item.name for group in services.FLAGS for item in flags_of(group)]
    assert len(names) == len(set(names)) and set(lease.FLAGS) < set(services.FLAGS)


def test_a_process_has_one_pipeline_per_store_and_trainer(location: str) -> None:
    first = pipeline.pipeline_of(hook_flags(location))
    assert pipeline.pipeline_of(hook_flags(location)) is first
    other = pipeline.pipeline_of(hook_flags(location, trainer_id="another"))
    assert other is not first and other.settings.buffer.trainer_id == "another"
    changed = pipeline.pipeline_of(hook_flags(location, batch_timeout=1.0))
    assert changed.settings.buffer.batch_timeout == 1.0 and changed.store is first.store
    pipeline._made.clear()
