"""Scripts with an existing Ray cluster, and as a job of it: impossible settings are rejected before the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from slime.ray.runtime import worker_environment
from tests.fakes.dry_run import bash, dry

TWO_NODES = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"NODE_RANK": "1"}, "so start the script once"),
        (
            {"TRAIN_GPUS": "0,1", "ROLLOUT_GPUS": "2,3", "NNODES": "1"},
            "give counts, ACTOR_GPUS, ROLLOUT_GPUS and PRM_GPUS",
        ),
    ],
)
def test_roles_and_gpu_lists_are_rejected_with_an_existing_ray_cluster(
    env: dict[str, str], said: str
) -> None:
    refused = dry(TWO_NODES, RAY_ADDRESS="10.0.0.1:6379", **env)
    assert refused.returncode == 2 and said in refused.stderr


def test_a_job_on_two_machines_waits_for_its_gpus_without_starting_ray() -> None:
    told = dry(TWO_NODES, RAY_ADDRESS="10.0.0.1:6379")
    assert told.returncode == 0, told.stderr
    assert "in the Ray cluster that RAY_ADDRESS names, once it has 16 GPUs" in told.stdout


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "set RUN_DIR (and SAVE_CKPT) to a folder that stays"),
        ({"RUN_DIR": "runs/mine"}, "set RUN_DIR (and SAVE_CKPT) to a folder that stays"),
        ({"RUN_DIR": "/data/run", "VENV": ""}, "set VENV to an environment"),
        ({"RUN_DIR": "/data/run"}, ""),
    ],
)
def test_persistent_files_are_not_written_to_rays_copy_of_the_repository(
    tmp_path: Path, env: dict[str, str], said: str
) -> None:
    copy = tmp_path / "working_dir_files" / "_ray_pkg_0a1b"
    refused = bash("-c", f"ROOT={copy}; source launch/env.sh; check_package", **env)
    assert (refused.returncode == 0) == (said == "") and said in refused.stderr


def test_cluster_workers_find_the_modules_but_get_no_keys() -> None:
    env = {
        "PYTHONPATH": "/repo:/repo/slime",
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/models",
        "HF_TOKEN": "secret",
        "MALLOC_ARENA_MAX": "2",
    }
    env |= {"SGLANG_API_KEY": "secret", "WANDB_API_KEY": "secret", "PATH": "/usr/bin"}
    assert worker_environment(env) == {
        "PYTHONPATH": "/repo:/repo/slime:${PYTHONPATH}",  # before the path of each machine
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/models",
        "MALLOC_ARENA_MAX": "2",
        "RAY_worker_niceness": "0",
    }
