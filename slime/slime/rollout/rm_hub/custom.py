"""Custom rewards: `--custom-rm-path`, with slime's signature or as a reward model.

    async f(args, sample, **kw) -> float | dict            async f(args, samples, **kw) -> list
    get_reward_model(config) -> object with .score(prompt, response, next_state) -> float

The number of required parameters distinguishes them, and the parameter's name `sample` from `samples`. Functions that
are not async are accepted too: they run in threads.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slime.errors import ConfigError
from slime.hooks import HOOKS, call_of, load_path
from slime.types import Sample

Kind = Literal["sample", "samples", "model"]


@dataclass(frozen=True)
class CustomReward:
    """A custom reward.

    Attributes:
        function: the loaded function; for a reward model its `score`.
        kind: its input: one sample, a list of samples, or three texts.
    """

    path: str
    function: Callable[..., Any]
    kind: Kind


def load_custom_reward(args: object, path: str) -> CustomReward:
    """Loads a custom reward; a reward model is created once per path and process.

    Raises:
        ConfigError: the signature is unknown, or a reward model has no `score` or cannot be created.
    """
    function = load_path("custom_rm_path", path)
    call = call_of(HOOKS["custom_rm_path"], function, path)
    if call.positional == ("config",):
        return CustomReward(path, _model(path, function, args).score, "model")
    names = list(inspect.signature(function).parameters)
    return CustomReward(path, function, "samples" if len(names) > 1 and names[1] == "samples" else "sample")


_models: dict[str, Any] = {}
_lock = threading.Lock()


def _model(path: str, make: Callable[..., object], args: object) -> Any:
    with _lock:
        if path not in _models:
            try:
                model = make(reward_config(args))
            except Exception as error:
                raise ConfigError(
                    f"--custom-rm-path {path}: creating the reward model failed: {error!r}"
                ) from error
            if not callable(getattr(model, "score", None)):
                raise ConfigError(
                    f"--custom-rm-path {path} returned a {type(model).__name__} without "
                    "score(prompt, response, next_state)"
                )
            _models[path] = model
        return _models[path]


def reward_config(args: object) -> dict[str, Any]:
    """Returns the `config` of `get_reward_model`: every flag by name, including `prm_model_path`."""
    return {"prm_model_path": None, **vars(args)}


def arguments_of(reward: CustomReward, args: object, sample: Sample) -> tuple[Any, ...]:
    """Returns the function's arguments for one sample."""
    if reward.kind == "model":
        return as_text(sample.prompt), sample.response, next_state_of(sample)
    return args, [sample] if reward.kind == "samples" else sample


def next_state_of(sample: Sample) -> str:
    """Returns the text after the response: `metadata["next_state"]`, else the label; "" without either."""
    state = sample.metadata.get("next_state", sample.label)
    return "" if state is None else as_text(state)


def as_text(value: object) -> str:
    """Returns chat messages as lines "role: content"; converts other values by str()."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
        return "\n".join(f"{one.get('role', '')}: {one.get('content', '')}" for one in value)
    return str(value)


def accepted_keywords(function: Callable[..., object], keywords: Mapping[str, object]) -> dict[str, Any]:
    """Returns the `keywords` that the function accepts."""
    while isinstance(function, functools.partial):
        function = function.func
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(keywords)
    return {name: value for name, value in keywords.items() if name in parameters}
