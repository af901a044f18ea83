"""Flags: a process reward model, which judges the steps of agents."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag, needs

JUDGES = needs(prm_enable=True)


@dataclass
class PrmArguments:
    """Judges of steps: an agent's reward is outcome + coefficient x mean score of its steps."""

    prm_enable: bool = flag(
        False,
        "score every step of agents with a judge (--prm-num-gpus, --prm-router-ip or --prm-url)",
        rules=[needs("custom_generate_function_path", why="an agent with judged steps")],
    )
    prm_m: int = flag(4, "votes per step, with --prm-enable", least=1, yields=True)
    prm_step_coef: float = flag(
        1.0, "weight of step scores (of a judge or the environment) relative to the agent's outcome"
    )
    prm_temperature: float = flag(
        1.0, "sampling temperature of the judge model, with --prm-enable", least=0, yields=True
    )
    prm_max_new_tokens: int = flag(2048, "maximum tokens of a vote, with --prm-enable", least=1, yields=True)
    prm_router_ip: str | None = flag(
        None,
        "host of an external judge engine, which uses token ids of --prm-model-path",
        rules=[JUDGES, needs("prm_router_port")],
    )
    prm_router_port: int | None = flag(
        None, "port of the external judge engine", least=1, most=65535, rules=[JUDGES, needs("prm_router_ip")]
    )
    prm_url: str | None = flag(
        None,
        "base URL of an OpenAI-compatible judge API, with /v1 if it has one",
        rules=[JUDGES, needs("prm_model")],
    )
    prm_model: str | None = flag(None, "name of the judge model at --prm-url", rules=[needs("prm_url")])
    prm_api_key: str | None = flag(None, "API key for --prm-url", env=("PRM_API_KEY",))
    prm_concurrency: int = flag(64, "concurrent votes", least=1, rules=[JUDGES])
    prm_timeout: float = flag(
        120.0, "time limit of one vote, seconds; a step without a vote has no score", above=0, rules=[JUDGES]
    )
