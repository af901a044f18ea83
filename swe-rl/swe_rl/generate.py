"""The track's hooks: `--custom-generate-function-path swe_rl.generate.generate`, and
`--service-path swe_rl.generate.start`, which refuses what cannot work before anything starts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slime.agents import EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.agents.sandbox import require_sandbox
from slime.agents.sandbox.command import box_python
from slime.arguments.declare import read
from slime.types import Sample
from swe_rl.environment import SweEnvironment
from swe_rl.flags import FLAGS, SweFlags
from swe_rl.grade import Grader
from swe_rl.patch import PatchPolicy
from swe_rl.repository import test_packages

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide

__all__ = ["FLAGS", "generate", "start"]


async def generate(args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """One episode; see `slime.agents.agent`."""
    return await _agent(read(SweFlags, args))(args, sample, sampling_params)


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """Starts no process of its own.

    Raises:
        ConfigError: there is no sandbox, or pytest could not be installed for the Python in it.
    """
    require_sandbox()
    test_packages(box_python()[0])
    return []


@functools.cache
def _agent(flags: SweFlags) -> Generate:
    policy = PatchPolicy(flags.strict_no_test_patch, flags.strict_no_config_patch)
    grader = Grader(policy, flags.eval_timeout)
    return agent(
        lambda: SweEnvironment(grader, flags.step_timeout),
        EpisodeLimits(turns=flags.step_limit),
        parallel=flags.parallel_envs,
    )
