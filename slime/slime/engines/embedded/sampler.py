"""Samples tokens from logits, batched over rows with separate temperature, truncation and random numbers."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from slime.engines.embedded.sequence import LogProb, LogProbs, Sequence
from slime.engines.requests import SamplingParams

IMPOSSIBLE = -1e9
"""Logit of a token that a grammar excludes. It is finite, because log-probs are sent as JSON."""


def scaled_log_probs(logits: Tensor, params: Seq[SamplingParams]) -> Tensor:
    """Returns log_softmax(logits / temperature) [rows, V] in float32; greedy rows are not scaled."""
    logits = logits.float()
    temperatures = [1.0 if p.greedy else p.temperature for p in params]
    if any(t != 1.0 for t in temperatures):
        logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1)


def truncate(probs: Tensor, params: Seq[SamplingParams]) -> Tensor:
    """Sets the tokens excluded by top_k, top_p and min_p to zero; probs [rows, V] are not renormalised.

    All three apply to the full distribution (SGLang's "joint" order); the most likely token always remains.
    """
    device, vocabulary = probs.device, probs.shape[-1]
    top_k = torch.tensor([p.top_k if p.top_k > 0 else vocabulary for p in params], device=device)[:, None]
    top_p = torch.tensor([p.top_p for p in params], device=device)[:, None]
    min_p = torch.tensor([p.min_p for p in params], device=device)[:, None]
    ordered, order = probs.sort(dim=-1, descending=True)
    rank = torch.arange(vocabulary, device=device)
    before = ordered.cumsum(dim=-1) - ordered
    keep = (rank < top_k) & ((before < top_p) | (top_p >= 1.0)) & (ordered >= min_p * ordered[:, :1])
    keep |= rank == 0
    return torch.zeros_like(probs).scatter_(-1, order, ordered * keep)


def draw(log_probs: Tensor, params: Seq[SamplingParams], uniform: Seq[float]) -> Tensor:
    """Returns token ids [rows]: argmax for greedy rows, else inverse transform sampling with one uniform
    number per row.

    With one number per row, a seeded request does not depend on the rest of the batch.
    """
    greedy = [p.greedy for p in params]
    if all(greedy):
        return log_probs.argmax(dim=-1)
    probs = log_probs.exp()
    cut = [i for i, p in enumerate(params) if p.truncates]
    if cut:
        rows = torch.tensor(cut, device=probs.device)
        probs[rows] = truncate(probs[rows], [params[i] for i in cut])
    cumulative = probs.cumsum(dim=-1, dtype=torch.float64)
    target = torch.tensor(uniform, dtype=torch.float64, device=probs.device)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, target, right=True).clamp_(max=probs.shape[-1] - 1)[:, 0]
    if any(greedy):
        return torch.where(torch.tensor(greedy, device=ids.device), log_probs.argmax(dim=-1), ids)
    return ids


def sample(logits: Tensor, rows: Seq[Sequence]) -> tuple[list[int], list[float]]:
    """Samples one token for each row of logits [rows, V].

    Returns ids and log-probs at the sampling temperature before truncation. Also records the top and the
    chosen log-probs of rows that request them.
    """
    params = [row.sampling for row in rows]
    log_probs = scaled_log_probs(adjust(logits, rows), params)
    ids = draw(
        log_probs,
        params,
        [0.0 if p.greedy else row.rng.random() for p, row in zip(params, rows, strict=True)],
    )
    sampled = log_probs.gather(-1, ids[:, None])[:, 0]
    for i, row in enumerate(rows):
        if row.return_logprob and (row.top_logprobs or row.chosen_ids):
            record_alternatives(log_probs[i : i + 1], row, row.output)
    return ids.tolist(), sampled.tolist()


def record_alternatives(log_probs: Tensor, row: Sequence, into: LogProbs) -> None:
    """Appends log-probs of the top K and chosen ids, from log_probs [n, V], in SGLang's format."""
    if row.top_logprobs:
        values, ids = log_probs.topk(min(row.top_logprobs, log_probs.shape[-1]), dim=-1)
        into.top.extend(_triples(v, i) for v, i in zip(values.tolist(), ids.tolist(), strict=True))
    if row.chosen_ids:
        chosen = log_probs[:, torch.tensor(row.chosen_ids, device=log_probs.device)]
        into.chosen.extend(_triples(v, row.chosen_ids) for v in chosen.tolist())


def _triples(values: list[float], ids: list[int]) -> list[LogProb]:
    return [(value, token, None) for value, token in zip(values, ids, strict=True)]


def score_prompt(logits: Tensor, row: Sequence, first: int) -> None:
    """Records prompt log-probs; logits [n, V] at positions first - 1, ... predict the tokens at first, ...

    Prompt log-probs are those of the model itself (temperature 1), as in SGLang, unless the request has a
    temperature.
    """
    log_probs = torch.log_softmax(logits.float() / row.input_temperature, dim=-1)
    targets = row.prompt_ids[first : first + log_probs.shape[0]]
    index = torch.tensor(targets, device=log_probs.device)[:, None]
    values = log_probs.gather(-1, index)[:, 0].tolist()
    row.input.tokens.extend(_triples(values, targets))
    record_alternatives(log_probs, row, row.input)


def adjust(logits: Tensor, rows: Seq[Sequence]) -> Tensor:
    """Returns logits [rows, V] with every row's bias, penalties and grammar; the same tensor if there are
    none.

    Log-probs of such rows are of the changed distribution, as in SGLang; other rows are unchanged.
    """
    changed = [i for i, row in enumerate(rows) if row.sampling.changes_logits or row.grammar is not None]
    if not changed:
        return logits
    logits = logits.float().clone()
    for i in changed:
        logits[i] = _adjusted(logits[i], rows[i])
    return logits


def _adjusted(logits: Tensor, row: Sequence) -> Tensor:
    """Applies bias, penalties and grammar to one row of logits [V].

    Repetition counts the prompt too (Keskar et al. 2019, section 4.1); frequency and presence count sampled tokens,
    as OpenAI's API documents them.
    """
    params, device = row.sampling, logits.device
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*row.prompt_ids, *row.output_ids}), device=device)
        value = logits[seen]
        logits[seen] = torch.where(
            value > 0, value / params.repetition_penalty, value * params.repetition_penalty
        )
    if row.output_ids and (params.frequency_penalty or params.presence_penalty):
        counts = torch.bincount(torch.tensor(row.output_ids, device=device), minlength=len(logits))
        logits = logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
    if params.logit_bias:
        ids = torch.tensor(list(params.logit_bias), device=device)
        logits[ids] += torch.tensor(list(params.logit_bias.values()), device=device)
    if row.grammar is not None:
        logits = logits.masked_fill(~row.grammar.allowed().to(device), IMPOSSIBLE)
    return logits
