"""Flags: rewards."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import excludes, flag
from slime.flags.shared import GENERATES_NOTHING


@dataclass
class RewardArguments:
    """Rewards."""

    rm_type: str | None = flag(
        None,
        "math, deepscaler, dapo, f1, gpqa, ifbench, random or remote_rm; boxed_NAME judges only "
        "the last boxed answer; overridden by a sample's metadata.rm_type",
        rules=[GENERATES_NOTHING],
        main=True,
    )
    rm_url: str | None = flag(
        None, "URL for remote_rm, which sends prompt, response and label by POST, and receives the reward"
    )
    custom_rm_path: str | None = flag(
        None,
        "async f(args, sample, **kw) -> reward, the same with a list of samples, or get_reward_model(config) -> "
        "object with .score(prompt, response, next_state)",
        rules=[
            GENERATES_NOTHING,
            excludes(
                "rm_type",
                text="--custom-rm-path and --rm-type are exclusive; drop one of them",
            ),
        ],
        main=True,
    )
    prm_model_path: str | None = flag(
        None,
        "folder of a reward model; config['prm_model_path'] of a get_reward_model(config)",
        env=("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"),
        yields=True,
    )
    rm_retries: int = flag(5, "retries of remote_rm after a failed connection or a status 5xx", least=0)
    rm_concurrency: int = flag(64, "maximum concurrent rewards, or requests to --rm-url", least=1)
    rm_max_failures: int = flag(
        32,
        "consecutive failed rewards after which the run fails; 0: no limit",
        least=0,
    )
