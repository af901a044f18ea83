"""Custom losses: `--custom-loss-function-path`, with one of three signatures.

    f(args, batch, logits, sum_of_sample_mean) -> (loss, metrics)
    compute_loss(policy_logits, reference_logits, rewards, advantages, config) -> loss
    f(args) -> LossSpec, as --loss-spec-path takes it

Their parameters distinguish them. The second signature gets log-probs of the sampled tokens, one sample at a time, so
that its result does not depend on packing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.hooks import HOOKS, call_of
from slime.losses.dense import DenseDistribution
from slime.plugins import load_attr

SAMPLE_PARAMETERS = ("policy_logits", "reference_logits", "rewards", "advantages", "config")
Signature = Literal["sample", "pack", "spec"]


def load_custom_loss(path: str) -> tuple[Callable[..., Any], Signature]:
    """Returns the function of `--custom-loss-function-path`, and its signature.

    Raises:
        ConfigError: it cannot be loaded, or has an unknown signature.
    """
    hook = HOOKS["custom_loss_function_path"]
    function: Callable[..., Any] = load_attr(path, hook.attr)
    place = hook.calls.index(call_of(hook, function, path))
    signatures: tuple[Signature, ...] = ("sample", "pack", "spec")
    return function, signatures[place]


def sample_loss(
    function: Callable[..., object],
    config: dict[str, Any],
    policy: Tensor,
    reference: Tensor,
    reward: Tensor,
    advantages: Tensor,
) -> Tensor:
    """Calls a loss of the second signature on one sample; everything but the config is [T].

    Raises:
        ConfigError: it does not return one number.
    """
    keywords = dict(
        zip(SAMPLE_PARAMETERS, (policy, reference, reward.expand_as(policy), advantages, config), strict=True)
    )
    parameters = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        keywords = {name: value for name, value in keywords.items() if name in parameters}
    loss = function(**keywords)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ConfigError(
            f"the custom loss returned {_described(loss)}; it must return one number as a tensor"
        )
    return loss.reshape(())


def pack_loss(
    function: Callable[..., object],
    args: object,
    batch: dict[str, Any],
    logits: Tensor,
    reducer: Callable[[Tensor], Tensor],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Calls a loss of the first signature; loss and metrics are sums over samples (or tokens).

    Raises:
        ConfigError: it does not return a loss and metrics.
    """
    returned = function(args, batch, logits, reducer)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)):
        raise ConfigError(f"the custom loss returned {_described(returned)}; it must return (loss, metrics)")
    loss, metrics = returned
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ConfigError(
            f"the custom loss returned {_described(loss)} as its loss; it must be one number as a tensor"
        )
    return loss.reshape(()), {name: torch.as_tensor(value).detach() for name, value in metrics.items()}


def _described(value: object) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def get_responses(
    logits: Tensor,
    *,
    args: object,
    unconcat_tokens: Sequence[Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields for every sample of a pack its logits [R, V] and tokens [R], from logits [1, N, V]."""
    end = 0
    for tokens, total, response in zip(unconcat_tokens, total_lengths, response_lengths, strict=True):
        end += total
        yield logits[0, end - response - 1 : end - 1], tokens[total - response :]


def get_log_probs_and_entropy(
    logits: Tensor,
    *,
    args: object,
    unconcat_tokens: Sequence[Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    with_entropy: bool = False,
    **_: object,
) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Returns an empty tensor (slime's second loss output), and "log_probs" (and "entropy"): [R] for every sample."""
    results: dict[str, list[Tensor]] = {"log_probs": [], **({"entropy": []} if with_entropy else {})}
    layout = {"unconcat_tokens": unconcat_tokens, "total_lengths": total_lengths}
    for chunk, tokens in get_responses(logits, args=args, response_lengths=response_lengths, **layout):  # type: ignore[arg-type]
        dist = DenseDistribution(chunk)
        results["log_probs"].append(dist.log_probs(tokens))
        if with_entropy:
            results["entropy"].append(dist.entropy())
    return torch.empty(0, device=logits.device), results
