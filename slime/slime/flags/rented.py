"""Flags: sampling and training on a service's GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag, needs

RENTED = needs(rollout_backend="rented")
TRAINED_THERE = needs(train_backend="rented")


@dataclass
class RentedArguments:
    """A model at a service (--rollout-backend rented, --train-backend rented)."""

    rented_service: str = flag(
        "", "client of the service, module:Class; see `slime.rented.service.Service`", rules=[RENTED]
    )
    rented_model: str = flag(
        "", "the base model's name at the service (default: --hf-checkpoint)", rules=[RENTED]
    )
    rented_url: str = flag("", "base URL of the service (default: its own)", rules=[RENTED])
    rented_stream_tokens: int = flag(
        0,
        "answer tokens per request to the service, which charges the prompt each time; 0: all",
        least=0,
        rules=[RENTED],
    )
    rented_loss: Literal["exact", "ppo", "importance_sampling", "cispo"] = flag(
        "exact",
        "exact: any loss on sampled tokens, two passes; else the service's policy loss, one pass",
        rules=[TRAINED_THERE],
    )
    rented_state: str = flag(
        "",
        "saved state at the service to start from, until --save has a checkpoint",
        rules=[TRAINED_THERE],
    )
    rented_judge: bool = flag(
        False, "start an engine with the service's unchanged base model as the judge", rules=[RENTED]
    )
    rented_prices: str | None = flag(
        None,
        "JSON file of prices, {model: {prefill, sample, train}} in US dollars per million tokens",
        rules=[RENTED],
    )
    max_cost: float | None = flag(
        None,
        "US dollars (by --rented-prices) after which training stops; serving continues",
        above=0,
        rules=[needs("rented_prices")],
    )
