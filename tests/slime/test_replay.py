"""Tests rollouts in files, and contradicting flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from claw_base.settings.rules import check_flags
from slime import replay
from slime.arguments import Arguments
from slime.arguments.rules.validation import check_run
from slime.errors import ConfigError, DataError
from slime.types import Sample


def samples(count: int) -> list[Sample]:
    return [
        Sample(
            index=index,
            group_index=index // 2,
            tokens=[1, 2, 3 + index],
            response_length=2,
            reward={"score": 0.1 + index},
            rollout_log_probs=[-0.1, -1 / 3],
            version_spans=[(1, 0, 1), (2, 1, 2)],
            metadata={"words": ["a"]},
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("name", ["r_{rollout_id}.json", "deep/{rollout_id}.json.gz"])
def test_a_saved_state_is_restored_bit_identically(tmp_path: Path, name: str) -> None:
    pattern = str(tmp_path / name)
    path = replay.save(pattern, 7, samples(3))
    assert path == tmp_path / name.format(rollout_id=7)
    assert replay.load(pattern, 7) == samples(3)
    assert replay.save(pattern, 7, samples(1), evaluation=True).name.startswith(("r_eval_7", "eval_7"))
    args = Arguments(load_debug_rollout_data=pattern)
    [group] = replay.replay(args, 7).samples
    assert group == samples(3)


def test_a_share_of_a_rollout_takes_its_start_and_end(tmp_path: Path) -> None:
    pattern = str(tmp_path / "{rollout_id}.json")
    replay.save(pattern, 0, samples(10))
    assert [sample.index for sample in replay.load(pattern, 0, share=0.5)] == [0, 1, 2, 8, 9]
    assert [sample.index for sample in replay.load(pattern, 0, share=0.01)] == [0]


def test_files_that_are_missing_broken_or_pickled_are_refused_by_name(tmp_path: Path) -> None:
    pattern = str(tmp_path / "{rollout_id}.json")
    with pytest.raises(ConfigError, match=r"3\.json, which is not there; set --num-rollout"):
        replay.load(pattern, 3)
    (tmp_path / "4.json").write_bytes(b"\x80\x04\x95")
    (tmp_path / "5.json").write_text('{"samples": [{"tokens": [1], "response_length": 9}]}')
    with pytest.raises(DataError, match=r"4\.json contains no samples"):
        replay.load(pattern, 4)
    with pytest.raises(DataError, match="response_length 9 does not fit"):
        replay.load(pattern, 5)
    odd = samples(1)
    odd[0].metadata["set"] = {1}
    with pytest.raises(DataError, match="rollout 6 cannot be written as JSON"):
        replay.save(pattern, 6, odd)
    assert not list(tmp_path.glob("*6*"))


def test_replay_trains_without_engines_and_colocation_alternates() -> None:
    args = Arguments(load_debug_rollout_data="x/{rollout_id}.json")
    check_run(args)
    assert args.debug_train_only and args.rollout_function_path == "slime.replay.replay"
    on_cpu = Arguments(colocate=True)
    check_run(on_cpu)
    assert (on_cpu.offload_rollout, on_cpu.offload_train) == (True, False)
    on_gpu = Arguments(colocate=True, actor_num_gpus_per_node=2, rollout_num_gpus=2, offload_rollout=False)
    check_run(on_gpu)
    assert (on_gpu.offload_rollout, on_gpu.offload_train) == (False, True)
    stays = Arguments(colocate=True, actor_num_gpus_per_node=2, rollout_num_gpus=2, train_backend="megatron")
    check_run(stays)
    assert (stays.offload_rollout, stays.offload_train) == (True, False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"offload_train": True, "colocate": True}, "trains on the CPU"),
        ({"offload_rollout": True}, "need --colocate"),
        ({"colocate": True, "rollout_num_gpus": 1}, "or neither"),
        ({"debug_rollout_only": True, "debug_train_only": True}, "are exclusive"),
        ({"load_debug_rollout_data": "one.json"}, "must contain {rollout_id}"),
        ({"load_debug_rollout_data_subsample": 0.0}, "above 0"),
        ({"train_timeout": -1.0}, "--train-timeout must be 0"),
        ({"train_epochs": 0}, "--train-epochs"),
        ({"profile": True, "profile_step_end": 1}, "--profile-step-end"),
        ({"reset_optimizer_states": True}, "set --load"),
    ],
)
def test_contradicting_run_modes_are_rejected(changes: dict[str, Any], complaint: str) -> None:
    args = Arguments(**changes)
    with pytest.raises(ConfigError, match=complaint):
        check_run(args)
        check_flags(args)
