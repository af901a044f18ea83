"""The parts of PPO that need a critic: generalised advantage estimation (GAE, Schulman 2016) and the clipped value
loss.

Only trained tokens are actions. Tool output between them belongs to the environment: it is no step of the recursion,
because nothing trains the critic on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from slime.losses.advantages import SampleTerms, reward_divergence
from slime.losses.formula import AdvantageSettings, LossOutput, Reducer


@torch.no_grad()
def gae(
    rewards: Sequence[Tensor], values: Sequence[Tensor], gamma: float, lambd: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns advantages and returns of each sample: A_t = d_t + gamma lambd A_{t+1}, d_t = r_t + gamma V_{t+1} -
    V_t.

    After the last token there is no value and no advantage. Returns are A + V.

    Args:
        rewards, values: [T] for each sample, T differs between samples. Computed in float64, returned in fp32.
    """
    if not rewards:
        return [], []
    reward = pad_sequence([x.double() for x in rewards])  # [longest T, samples], zeros after the end
    value = pad_sequence([x.double() for x in values])
    following = torch.cat([value[1:], torch.zeros_like(value[:1])])
    surprise = reward + gamma * following - value
    advantage = torch.empty_like(value)
    running = torch.zeros_like(value[0])
    for t in reversed(range(len(value))):
        running = advantage[t] = surprise[t] + gamma * lambd * running
    lengths = [len(x) for x in rewards]
    cut = [advantage[:length, s] for s, length in enumerate(lengths)]
    returns = [part + value[: len(part), s] for s, part in enumerate(cut)]
    return [part.float() for part in cut], [part.float() for part in returns]


def ppo_advantages(
    settings: AdvantageSettings, terms: Sequence[SampleTerms], values: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns GAE over trained tokens; a token's reward is -kl_coef * KL, and the sample's reward is added at the
    last one.

    Args:
        values: of the critic before each trained token, [T] for each sample.
    """
    kl_coef, kind = settings.kl_coef, settings.kl_loss_type
    rewards = [-kl_coef * reward_divergence(item, kl_coef, kind) for item in terms]
    for reward, item in zip(rewards, terms, strict=True):
        reward[-1] += item.reward
    return gae(rewards, values, settings.gamma, settings.lambd)


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, reducer: Reducer, clip: float
) -> LossOutput:
    """Returns max((V - G)^2, (clip(V, old - clip, old + clip) - G)^2), all [T]: a value that has moved toward its
    return by more than `clip` gets no gradient."""
    plain = (values - returns).square()
    bounded = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    clipped = (bounded - returns).square()
    loss = reducer(torch.maximum(plain, clipped))
    measured = {"value_clipfrac": (clipped > plain).to(values.dtype), "value": values, "return": returns}
    metrics = {name: reducer(item).detach() for name, item in measured.items()}
    return LossOutput(loss, {"value_loss": loss.detach(), **metrics})
