"""Which model teaches in the trainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoTokenizer

from slime.errors import ConfigError
from slime.training.core.teacher import Teacher
from slime.training.fsdp.loading import load_model
from slime.training.fsdp.lora import without_adapters
from slime.training.fsdp.reference import Reference

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def make_teacher(
    args: Any, rank: int, mesh: DeviceMesh, policy: Any, reference: Reference | None, first: str
) -> Teacher:
    """The teacher of the flags.

    Args:
        policy: the model that is trained. reference: of the KL term; its model teaches too where it is the same
            and stays the same.
        first: folder of the weights that training began with.

    Raises:
        ConfigError: a model that cannot be loaded, or with another vocabulary.
    """
    if args.teacher_source != "trainer":
        return Teacher(args, rank, None)
    if args.teacher_model == "self":
        return Teacher(args, rank, policy)
    base = args.teacher_model == "base"
    folder = first if base else str(args.teacher_model)
    without = partial(without_adapters, policy)
    if args.use_lora and Path(folder).resolve() == Path(first).resolve():
        return Teacher(args, rank, policy, without)
    frozen = reference is not None and reference.interval is None
    if frozen and Path(folder).resolve() == Path(args.ref_load).resolve():
        return Teacher(args, rank, reference.model)  # type: ignore[union-attr]
    if not base:
        check_tokenizer(folder, args.hf_checkpoint)
    model = load_model(folder, mesh, args, trained=False)
    model.requires_grad_(False)
    sizes = [each.config.get_text_config().vocab_size for each in (model, policy)]
    if sizes[0] != sizes[1]:
        raise ConfigError(f"the teacher in {folder} has {sizes[0]} tokens, the student {sizes[1]}")
    return Teacher(args, rank, model)


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
