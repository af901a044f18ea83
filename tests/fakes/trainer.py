"""The trainer behind Tinker's protocol, request by request, with a real tiny model in this process.

An answer gives the id of its result (`request_id`), which is requested later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slime.rented.service import AdamStep, ServiceRefuses, TrainingSequence
from tests.fakes.local_service import LocalService

UNBOUNDED = {"clip_low_threshold": 0.0, "clip_high_threshold": 1e9}
Body = dict[str, Any]


@dataclass
class TrainerHouse:
    """What a fake keeps.

    Attributes:
        asked: names of all requests. options: bodies of some, by what they are about.
        results: by request; a Refused is told with its status.
        snapshots: addresses of `service` by the name of the saved sampler. states: by what training goes on from.
    """

    service: LocalService
    asked: list[str] = field(default_factory=list)
    options: Body = field(default_factory=dict)
    trained: Body = field(default_factory=dict)
    results: Body = field(default_factory=dict)
    snapshots: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    """An error answer with status 400."""


Call = Callable[[Any, Body], Any]


def later(answer: Call) -> Call:
    """Answers as servers do: with the request's id now, and the result on a later request."""

    def queue(house: TrainerHouse, body: Body) -> Body:
        name = str(len(house.results) + 1)
        try:
            house.results[name] = answer(house, body)
        except (Refused, ServiceRefuses) as error:
            house.results[name] = Refused(str(error))
        return {"future_id": name, "status": "pending", "request_id": name}

    return queue


def create_model(house: TrainerHouse, body: Body) -> Body:
    name = f"model_{len(house.trained)}"
    house.trained[name] = house.service.new()
    house.options["base_only"] = body.get("base_only", False)
    return {"type": "create_model", "model_id": name}


def sequences(data: list[Body]) -> list[TrainingSequence]:
    """Returns the training sequences of data whose inputs are {name: {"data": [N - 1]}}."""
    found = []
    for datum in data:
        inputs = {name: tensor["data"] for name, tensor in datum["loss_fn_inputs"].items()}
        ids = ids_of(datum["model_input"])
        found.append(
            TrainingSequence(
                [*ids, int(inputs["target_tokens"][-1])],
                inputs.get("logprobs", ()),
                inputs.get("advantages", ()),
            )
        )
    return found


def ids_of(model_input: Body) -> list[int]:
    return [token for chunk in model_input["chunks"] for token in chunk["tokens"]]


def forward(house: TrainerHouse, asked: Body, model: str) -> list[list[float]]:
    found: list[list[float]] = house.trained[model].forward(sequences(asked["data"])).result()
    return found


def forward_backward(house: TrainerHouse, asked: Body, model: str) -> list[list[float]]:
    config = asked.get("loss_fn_config") or UNBOUNDED
    clip = config["clip_low_threshold"], config["clip_high_threshold"]
    found: list[list[float]] = (
        house.trained[model].policy_gradient(asked["loss_fn"], clip, sequences(asked["data"])).result()
    )
    return found


def optim_step(house: TrainerHouse, body: Body) -> Body:
    asked = body["adam_params"]
    house.options["step"] = body
    adam = AdamStep(
        asked["learning_rate"], asked["beta1"], asked["beta2"], asked["eps"], asked["weight_decay"],
        asked["grad_clip_norm"],
    )  # fmt: skip
    return {"metrics": house.trained[body["model_id"]].step(adam).result()}


def save_state(house: TrainerHouse, body: Body, address: str) -> Body:
    house.states[address] = house.trained[body["model_id"]].save_state(address).result()
    return {"type": "save_weights", "path": address}


def save_sampler(house: TrainerHouse, body: Body, address: str) -> Body:
    house.snapshots[address] = house.trained[body["model_id"]].save_sampler(address).result()
    return {"type": "save_weights_for_sampler", "path": address}


def load_state(house: TrainerHouse, body: Body) -> Body:
    if body["path"] not in house.states:
        raise Refused(f"Checkpoint not found: {body['path']}")
    house.trained[body["model_id"]] = house.service.resume(house.states[body["path"]])
    return {"type": "load_weights"}
