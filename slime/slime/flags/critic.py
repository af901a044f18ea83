"""Flags: the critic of PPO."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag, needs

OF_CRITIC = needs(advantage_estimator="ppo", why="which has a critic")


@dataclass
class CriticArguments:
    """Critic (--advantage-estimator ppo). It runs in the training processes, together with the policy."""

    lambd: float = flag(
        1.0,
        "lambda of generalised advantage estimation",
        least=0,
        most=1,
        rules=[OF_CRITIC],
    )
    value_clip: float = flag(
        0.2, "clip range of value changes within one rollout", above=0, rules=[OF_CRITIC]
    )
    critic_lr: float | None = flag(
        None, "peak learning rate of the critic (default: --lr)", least=0, rules=[OF_CRITIC]
    )
    critic_load: str | None = flag(
        None,
        "Hugging Face model folder that initializes the critic (default: --hf-checkpoint)",
        rules=[OF_CRITIC],
    )
    num_critic_only_steps: int = flag(
        0, "number of initial rollouts that train only the critic", least=0, rules=[OF_CRITIC]
    )
