"""A fake service that rents out a real tiny model in this process. Saved weights never change, and the service can be
made unavailable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.rented.service import (
    AdamStep,
    Sampled,
    SamplingRequest,
    ServiceAway,
    ServiceRefuses,
    ServiceSettings,
    TrainingSequence,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Value = TypeVar("Value")


@dataclass
class House:
    """Shared state of all clients of one test.

    Attributes:
        away: number of the next requests that fail. refuses: whether a sequence is rejected. asked: names of the
            calls. loaded: address of the weights that an exclusive service uses.
    """

    kept: dict[str, Any] = field(default_factory=dict)
    away: int = 0
    refuses: Callable[[Sequence[int]], bool] = lambda ids: False
    asked: list[str] = field(default_factory=list)
    loaded: str | None = None

    def ask(self, name: str) -> None:
        self.asked.append(name)
        if self.away > 0:
            self.away -= 1
            raise ServiceAway("nobody is at home")


HOUSE = House()


def move_in() -> House:
    """Returns an empty state for one test."""
    HOUSE.__init__()  # type: ignore[misc]
    return HOUSE


def done(make: Callable[[], Value]) -> Future[Value]:
    future: Future[Value] = Future()
    try:
        future.set_result(make())
    except Exception as error:
        future.set_exception(error)
    return future


class LocalService:
    exclusive = False

    def __init__(self, settings: ServiceSettings) -> None:
        if not settings.model:
            raise ConfigError("no model")
        self.settings = settings

    def check(self) -> None:
        HOUSE.ask("check")

    def sampler(self, address: str | None) -> LocalSampler:
        HOUSE.ask("sampler")
        return LocalSampler(self._base() if address is None else self._kept(address)[0])

    def load(self, address: str | None) -> None:
        HOUSE.ask("load")
        HOUSE.loaded = address

    def new(self) -> LocalTrained:
        HOUSE.ask("new")
        return LocalTrained(self._base(), None)

    def resume(self, address: str) -> LocalTrained:
        HOUSE.ask("resume")
        model, optimizer = self._kept(address)
        return LocalTrained(copy.deepcopy(model), optimizer)

    def _base(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(self.settings.model, dtype=torch.float32)

    def _kept(self, address: str) -> tuple[Any, Any]:
        if address not in HOUSE.kept:
            raise ServiceRefuses(f"there is no {address}")
        found: tuple[Any, Any] = HOUSE.kept[address]
        return found


def log_probs(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Returns the log-probs of ids 1 to N - 1 at temperature 1."""
    tokens = torch.tensor([list(ids)])
    values = torch.log_softmax(model(input_ids=tokens).logits[0, :-1].float(), -1)
    return values.gather(-1, tokens[0, 1:, None]).squeeze(-1)


class LocalSampler:
    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @torch.no_grad()
    def _sampled(self, wish: SamplingRequest) -> Sampled:
        HOUSE.ask("sample")
        if HOUSE.refuses(wish.prompt):
            raise ServiceRefuses("the prompt is not liked")
        ids, values = list(wish.prompt), []
        for _ in range(wish.most):
            scores = torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0, -1].float(), -1)
            hot = (scores / wish.temperature).softmax(-1) if wish.temperature else None
            token = int(scores.argmax() if hot is None else torch.multinomial(hot, 1))
            ids.append(token)
            values.append(float(scores[token]))
            if token in wish.stop_ids:
                return Sampled(ids[len(wish.prompt) :], values, True)
        return Sampled(ids[len(wish.prompt) :], values, False)

    def sample(self, wish: SamplingRequest) -> Future[Sampled]:
        return done(lambda: self._sampled(wish))

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        def answer() -> list[float]:
            HOUSE.ask("log_probs")
            if HOUSE.refuses(ids):
                raise ServiceRefuses("the sequence is not liked")
            with torch.no_grad():
                found: list[float] = log_probs(self.model, ids).tolist()
            return found

        return done(answer)


class LocalTrained:
    """Trains all weights, so that the result must equal that of a full-model trainer."""

    def __init__(self, model: PreTrainedModel, optimizer: dict[str, Any] | None) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        if optimizer is not None:
            self.optimizer.load_state_dict(copy.deepcopy(optimizer))

    def forward(self, sequences: Sequence[TrainingSequence]) -> Future[list[list[float]]]:
        def answer() -> list[list[float]]:
            HOUSE.ask("forward")
            with torch.no_grad():
                return [log_probs(self.model, one.ids).tolist() for one in sequences]

        return done(answer)

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], sequences: Sequence[TrainingSequence]
    ) -> Future[list[list[float]]]:
        def answer() -> list[list[float]]:
            HOUSE.ask(loss)
            found = []
            for one in sequences:
                now, advantages = log_probs(self.model, one.ids), torch.tensor(one.advantages)
                ratio = (now - torch.tensor(one.log_probs)).exp()
                clipped = ratio.clamp(*clip)
                gains = {
                    "importance_sampling": ratio * advantages,
                    "ppo": torch.minimum(ratio * advantages, clipped * advantages),
                    "cispo": clipped.detach() * advantages * now,
                }
                torch.autograd.backward(-gains[loss].sum())
                found.append(now.tolist())
            return found

        return done(answer)

    def step(self, adam: AdamStep) -> Future[dict[str, float]]:
        def answer() -> dict[str, float]:
            HOUSE.ask("step")
            for group in self.optimizer.param_groups:
                group |= {"lr": adam.learning_rate, "betas": (adam.beta1, adam.beta2), "eps": adam.eps}
                group["weight_decay"] = adam.weight_decay
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), adam.clip_norm or float("inf"))
            self.optimizer.step()
            self.optimizer.zero_grad()
            return {"local/grad_norm": float(norm)}

        return done(answer)

    def save_sampler(self, name: str) -> Future[str]:
        return self._keep("sampler", name, None)

    def save_state(self, name: str) -> Future[str]:
        return self._keep("state", name, copy.deepcopy(self.optimizer.state_dict()))

    def _keep(self, kind: str, name: str, optimizer: dict[str, Any] | None) -> Future[str]:
        def answer() -> str:
            HOUSE.ask(kind)
            address = f"local://{kind}/{name}/{len(HOUSE.kept)}"
            HOUSE.kept[address] = copy.deepcopy(self.model), optimizer
            return address

        return done(answer)
