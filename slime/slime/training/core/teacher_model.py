"""Which model teaches in the trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoTokenizer

from slime.errors import ConfigError
from slime.training.core.model import TrainedModel
from slime.training.core.reference import Reference
from slime.training.core.teacher import Teacher

if TYPE_CHECKING:
    from slime.flags import Arguments

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def make_teacher(
    args: Arguments,
    replica: int,
    policy: TrainedModel,
    reference: Reference | None,
    first: str,
    load: Callable[[str], TrainedModel],
) -> Teacher:
    """The teacher of the flags.

    Args:
        replica: which samples of a step are this rank's.
        policy: the model that is trained. reference: of the KL term; its model teaches too where it is the same
            and stays the same.
        first: folder of the weights that training began with.
        load: the model in a folder, spread over the ranks as the policy is.

    Raises:
        ConfigError: a model that cannot be loaded, or with another vocabulary.
    """
    if args.teacher_source != "trainer":
        return Teacher(args, replica, None)
    if args.teacher_model == "self":
        return Teacher(args, replica, policy)
    base = args.teacher_model == "base"
    folder = first if base else str(args.teacher_model)
    if args.use_lora and Path(folder).resolve() == Path(first).resolve():
        return Teacher(args, replica, policy, policy.without_adapters)
    if reference is not None and reference.is_always(folder):
        return Teacher(args, replica, reference.model)
    if not base:
        check_tokenizer(folder, args.hf_checkpoint)
    model = load(folder)
    model.requires_grad_(False)
    if model.vocabulary != policy.vocabulary:
        raise ConfigError(
            f"the teacher in {folder} has {model.vocabulary} tokens, the student {policy.vocabulary}"
        )
    return Teacher(args, replica, model)


def check_tokenizer(teacher: str, student: str) -> None:
    """Raises ConfigError where the two folders' tokenizers give one id to different tokens."""
    has = [any((Path(folder) / name).is_file() for name in TOKENIZER_FILES) for folder in (teacher, student)]
    if not all(has):
        return
    vocabularies = [_vocabulary(folder) for folder in (teacher, student)]
    different = sorted(set(vocabularies[0].items()) ^ set(vocabularies[1].items()), key=lambda pair: pair[1])
    if different:
        token, number = different[0]
        raise ConfigError(
            f"--teacher-model {teacher} has another tokenizer than {student}: they disagree on id {number} "
            f"({token!r}); a teacher reads the student's ids, so it needs the same vocabulary"
        )


def _vocabulary(folder: str) -> dict[str, int]:
    known: dict[str, int] = AutoTokenizer.from_pretrained(folder, local_files_only=True).get_vocab()
    return known
