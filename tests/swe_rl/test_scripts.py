"""Tests that every script of the track prints its plan without a GPU, data or a model, and rejects impossible
settings."""

from __future__ import annotations

import os

import pytest

from tests import ROOT
from tests.fakes.dry_run import bash, dry

SPLITS = {
    "run_swe_rl": "trainer 4 + policy 4 = 8",
    "run_swe_rl_4b": "trainer 4 + policy 4 = 8",
    "run_swe_rl_8b_2nodes": "trainer 8 + policy 8 = 16",
    "run_swe_rl_8b_prm_5nodes": "trainer 16 + policy 16 + judge 8 = 40",
    "run_swe_rl_32b_4nodes": "trainer 16 + policy 16 = 32",
    "run_swe_rl_32b_remote_8nodes": "trainer 32 + policy 32 = 64",
    "run_swe_rl_4b_4nodes_colocate": "32",
}


def shown(told: str, flag: str) -> str:
    [line] = [line for line in told.splitlines() if line.split()[:1] == [flag]]
    return line


@pytest.mark.parametrize("name", SPLITS)
def test_a_dry_run_shows_a_plan_that_fits(name: str) -> None:
    done = dry(f"swe-rl/{name}.sh", SWE_BENCH_PATH=str(ROOT / "swe-rl/instances/prompts_example.jsonl"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fits     every part" in done.stdout and SPLITS[name] in done.stdout
    assert "swe_rl.generate.generate" in shown(done.stdout, "--custom-generate-function-path")
    assert ("step_wise" if "prm" in name else "grpo") in shown(done.stdout, "--advantage-estimator")
    assert os.access(ROOT / f"swe-rl/{name}.sh", os.X_OK)


def test_with_remote_hosts_the_plan_contains_no_sandboxes() -> None:
    script, hosts = "swe-rl/run_swe_rl_32b_remote_8nodes.sh", "http://10.0.1.1:18081,http://10.0.1.2:18081"
    assert "envs     128 at a time" in dry(script).stdout
    done = dry(script, SWE_EXEC_SERVER_URLS=hosts)
    assert "envs     128 at a time" not in done.stdout
    assert hosts in shown(done.stdout, "--exec-server-urls")


def test_a_remote_run_without_hosts_is_refused() -> None:
    done = bash("swe-rl/run_swe_rl_32b_remote_8nodes.sh")
    assert done.returncode != 0 and "SWE_EXEC_SERVER_URLS is not set" in done.stderr


@pytest.mark.parametrize("name", [*SPLITS, "run_tiny_swe_rl"])
def test_a_script_describes_itself(name: str) -> None:
    assert f"bash swe-rl/{name}.sh" in bash(f"swe-rl/{name}.sh", "--help").stdout
