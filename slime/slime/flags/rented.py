"""Flags: sampling and gradients on the GPUs of a service."""

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
        "tokens of an answer that are asked for at a time: services answer a request as a whole, and prompts are read, "
        "and paid for, with each; 0: the whole answer",
        least=0,
        rules=[RENTED],
    )
    rented_loss: Literal["exact", "ppo", "importance_sampling", "cispo"] = flag(
        "exact",
        "exact: any loss of the sampled tokens, computed here, in a forward and a backward pass; otherwise one that the "
        "service computes in one pass, where nothing but a policy loss is asked for",
        rules=[TRAINED_THERE],
    )
    rented_state: str = flag(
        "",
        "address of a state that the service keeps, to begin with while --save has no checkpoint yet",
        rules=[TRAINED_THERE],
    )
    rented_judge: bool = flag(
        False, "an engine of the service's base model, which never changes, for the judge", rules=[RENTED]
    )
    rented_prices: str | None = flag(
        None,
        "JSON file of prices, {model: {prefill, sample, train}} in US dollars for a million tokens",
        rules=[RENTED],
    )
    max_cost: float | None = flag(
        None,
        "US dollars of --rented-prices after which training stops; serving goes on",
        above=0,
        rules=[needs("rented_prices")],
    )
