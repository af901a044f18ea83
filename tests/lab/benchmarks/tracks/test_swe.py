from __future__ import annotations

import pytest

from claw_lab.benchmarks.tracks.swe import measured
from swe_rl.instance import Instance


@pytest.mark.usefixtures("environments")
def test_the_scripted_agent_repairs_the_bug_and_leaves_no_files(instance: Instance) -> None:
    found = measured([instance], seconds=60.0, episodes=3, parallel=2)
    assert found["episodes"] == found["solved"] == 3
    assert found["left"] == {"processes": 0, "mounts": 0, "workspaces": 0}
