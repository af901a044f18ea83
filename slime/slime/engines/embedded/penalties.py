"""What changes the logits themselves: logit bias, repetition, frequency and presence penalties.

Log-probs of such a request are of the changed distribution, as in SGLang; only its own row is touched.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from slime.engines.embedded.sequence import Sequence


def adjust(logits: Tensor, rows: Seq[Sequence]) -> Tensor:
    """Logits [rows, V] with every row's bias and penalties; the same tensor if no row has any."""
    changed = [i for i, row in enumerate(rows) if row.sampling.changes_logits]
    if not changed:
        return logits
    logits = logits.float().clone()
    for i in changed:
        logits[i] = _adjusted(logits[i], rows[i])
    return logits


def _adjusted(logits: Tensor, row: Sequence) -> Tensor:
    """One row of logits [V].

    Repetition counts the prompt too (Keskar et al. 2019, section 4.1); frequency and presence count what was
    sampled, as OpenAI's API documents them.
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
    return logits
