"""Supervised fine-tuning: the data set's conversations are the samples; no engine is used.

`--rollout-function-path slime.rollout.sft_rollout.generate_rollout --loss-type sft_loss --input-key messages`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slime.errors import ConfigError, DataError
from slime.rollout.dataset import template_variables
from slime.rollout.loss_masks import Masked, masked
from slime.rollout.sglang_rollout import discard
from slime.rollout.tokenizer import load_tokenizer
from slime.types import RolloutFnTrainOutput, Sample, SampleStatus, flatten

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide
    from slime.rollout.data_source import DataSource

logger = logging.getLogger(__name__)


def generate_rollout(
    args: GenerationSide, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """Returns `--rollout-batch-size` conversations with their loss masks.

    Conversations without an answer to train on, with the template's own markers in a message, or longer than
    `--rollout-max-context-len` are dropped, counted and replaced by the next.

    Raises:
        ConfigError: an evaluation is requested, or the template is not supported.
        DataError: `--rollout-drop-limit` consecutive conversations were dropped.
    """
    if evaluation:
        raise ConfigError("supervised fine-tuning has no answers to evaluate; set --eval-function-path")
    batch: list[list[Sample]] = []
    dropped: dict[str, int] = {}
    in_a_row, last = 0, ""
    while len(batch) < args.rollout_batch_size:
        groups = data_source.get_samples(args.rollout_batch_size - len(batch))
        if not groups:
            raise DataError("the data source has no conversations")
        for group in groups:
            reason, last = fill(args, group) or ("", last)
            if not reason:
                batch.append(group)
                in_a_row = 0
                continue
            dropped[reason] = dropped.get(reason, 0) + 1
            in_a_row += 1
            discard(data_source, [group])
        assert args.rollout_drop_limit is not None
        if in_a_row >= args.rollout_drop_limit:
            raise DataError(f"{in_a_row} consecutive conversations were dropped; the last one because {last}")
    return RolloutFnTrainOutput(batch, {f"rollout/drop/{reason}": count for reason, count in dropped.items()})


def fill(args: GenerationSide, group: list[Sample]) -> tuple[str, str] | None:
    """Converts the samples of a group to trained ones; otherwise returns why not: a metric name and a
    sentence."""
    for sample in flatten(group):
        try:
            messages = conversation(args, sample)
        except DataError as error:
            logger.warning("conversation %s dropped: %s", sample.index, error)
            return "no_mask", str(error)
        limit = args.rollout_max_context_len
        if limit is not None and len(messages.ids) > limit:
            return (
                "too_long",
                f"it has {len(messages.ids)} tokens, more than --rollout-max-context-len {limit}",
            )
        first = messages.mask.index(1)
        sample.tokens, sample.loss_mask = messages.ids, messages.mask[first:]
        sample.response_length = len(messages.ids) - first
        sample.response = load_tokenizer(args.hf_checkpoint).decode(messages.ids[first:])
        sample.status = SampleStatus.COMPLETED
    return None


def conversation(args: GenerationSide, sample: Sample) -> Masked:
    """Returns ids and mask of the messages of a sample."""
    if isinstance(sample.prompt, str):
        raise ConfigError(
            f"--input-key {args.input_key} must be a column of messages for supervised "
            "fine-tuning, not of texts"
        )
    return masked(
        load_tokenizer(args.hf_checkpoint),
        sample.prompt,
        sample.metadata.get("tools"),
        args.loss_mask_type,
        template_variables(args),
    )
