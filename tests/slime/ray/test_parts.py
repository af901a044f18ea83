"""Tests the pure functions: placement, batches, the progress line."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.arguments.rules.engine import check_engine
from slime.engines.sglang import memory
from slime.errors import ConfigError
from slime.plan.gpu_split import GpuSplit, RunPart, split_of
from slime.ray import actor_process
from slime.ray.actor_process import enable_expandable_segments, server_environment
from slime.ray.placement import BundleSite, gpu_named, in_node_order
from slime.ray.servers.weight_sender import WeightSharer
from slime.tracking import progress_line


def test_without_gpus_every_rank_gets_a_cpu_bundle() -> None:
    split = split_of(Arguments(num_train_processes=2))
    assert split.bundles() == [{"CPU": 1.0}] * 3
    split.check(gpus=0)


def test_debug_modes_and_colocation_omit_unneeded_components() -> None:
    def bundles(**flags: Any) -> int:
        return split_of(Arguments(num_train_processes=2, rollout_num_engines=3, **flags)).total

    assert bundles() == 5
    assert bundles(debug_rollout_only=True) == 3
    assert bundles(debug_train_only=True) == 2
    assert bundles(colocate=True) == 2
    gpus = Arguments(actor_num_gpus_per_node=2, rollout_num_gpus=4, colocate=True)
    with pytest.raises(ConfigError, match="the engines need 4 GPUs, but the trainers have only 2"):
        split_of(gpus)


def test_an_impossible_gpu_split_is_rejected_with_the_calculation() -> None:
    split = GpuSplit((RunPart("actor", 4, True), RunPart("rollout", 2, True), RunPart("prm", 1, False)))
    with pytest.raises(ConfigError, match=r"actor 4 \+ rollout 2 = 6 GPUs, but there are 4"):
        split.check(gpus=4)


def test_bundles_are_sorted_by_node_then_gpu() -> None:
    sites = [BundleSite(0, "10.0.0.10", 0), BundleSite(1, "10.0.0.9", 1), BundleSite(2, "10.0.0.9", 0)]
    assert [site.bundle for site in in_node_order(sites)] == [2, 1, 0]


def test_the_progress_line_shows_the_measurements() -> None:
    line = progress_line(7, {"weights/version": 8, "train/loss": -0.12345, "perf/train_time": 1.5})
    assert line == "rollout 7 | version 8 | loss -0.123 | train 1.5s"
    wrong = {"rollout/drop/refused": 2, "rollout/error_cat/timeout": 1, "rollout/error_cat/reward": 0}
    line = progress_line(7, {"train/loss": 0.0, "train/groups_all_equal": 3, **wrong})
    assert line == "rollout 7 | loss 0 | equal groups 3 | failed 1 timeout | dropped 2 refused"


def test_gpus_may_be_named_by_their_uuids() -> None:
    assert [gpu_named(told) for told in ("4", 4, "GPU-8a1f", "MIG-1c2d")] == [4, 4, "GPU-8a1f", "MIG-1c2d"]
    sites = [BundleSite(0, "10.0.0.1", "GPU-b"), BundleSite(1, "10.0.0.1", "GPU-a")]
    assert [site.gpu for site in in_node_order(sites)] == ["GPU-a", "GPU-b"]


GROWS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_trainers_use_expandable_segments_unless_configured() -> None:
    environ: dict[str, str] = {}
    enable_expandable_segments(environ)
    assert environ == GROWS
    environ = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
    enable_expandable_segments(environ)
    assert environ == {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}


def test_memory_sharers_and_servers_use_torchs_default_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = {**GROWS, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert server_environment({**exported, "PATH": "/bin", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}) == {
        "PATH": "/bin"
    }
    seen: list[set[str]] = []
    for name, value in {**exported, "CUDA_VISIBLE_DEVICES": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(memory, "Sharer", lambda: seen.append(set(os.environ) & set(exported)))
    monkeypatch.setattr(actor_process, "enter", lambda *_: None)
    plain = WeightSharer.__ray_metadata__.modified_class
    plain(tmp_path, "0")
    assert seen == [set()]


@pytest.mark.parametrize(
    ("backend", "given", "seconds"),
    [
        ("embedded", None, 300.0),
        ("sglang", None, 1200.0),
        ("vllm", None, 1200.0),
        ("sglang", 90.0, 90.0),
        ("sglang", 0.0, math.inf),
    ],
)
def test_an_engine_that_builds_kernels_gets_a_longer_start_timeout_unless_configured(
    backend: str, given: float | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.arguments.rules.engine.check_external", lambda args: None)
    args = Arguments(rollout_backend=backend, engine_start_timeout=given)
    check_engine(args)
    assert args.engine_start_limit == seconds
