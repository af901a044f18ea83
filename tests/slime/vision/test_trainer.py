"""Tests that the trainer's results for samples with images equal those of transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from slime.errors import ConfigError, DataError
from slime.training.core.packing import pack
from slime.types import Sample
from slime.vision.models import PlacedImages
from slime.vision.place import ImagePlace
from slime.vision.positions import position_shift_after, rope_positions
from tests.fakes.fixtures import MakeTrainer, MakeTrainingArgs
from tests.fakes.tiny_vision_model import load_reference, picture, reference_log_probs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tests.slime.vision.conftest import MakeSample


CPU = torch.device("cpu")


def gap(found: list[list[float]], samples: list[Sample], reference: PreTrainedModel) -> float:
    expected = [reference_log_probs(reference, sample) for sample in samples]
    assert list(map(len, found)) == list(map(len, expected))
    return max(
        abs(a - b)
        for one, other in zip(found, expected, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_positions_match_transformers(samples: list[Sample], reference: PreTrainedModel) -> None:
    for sample in samples[:4]:
        types = torch.zeros(1, len(sample.tokens), dtype=torch.int)
        for place in sample.images:
            types[0, place.start : place.end] = 1
        grids = torch.tensor([place.grid for place in sample.images])
        expected, shift = reference.model.get_rope_index(torch.tensor([sample.tokens]), types, grids)
        assert torch.equal(rope_positions(len(sample.tokens), sample.images), expected[:, 0])
        assert position_shift_after(len(sample.tokens), sample.images) == int(shift)


@pytest.mark.parametrize("flags", [{}, {"log_probs_chunk_size": 3}, {"gradient_checkpointing": True}])
def test_log_probs_are_those_of_transformers_with_images_in_prompt_and_response(
    make_trainer: MakeTrainer, samples: list[Sample], reference: PreTrainedModel, flags: dict[str, Any]
) -> None:
    trainer = make_trainer(**flags)
    assert gap(trainer.log_probs(samples), samples, reference) < 1e-5


def test_prompts_with_equal_images_are_shared_and_other_images_are_not(
    samples: list[Sample],
) -> None:
    packed = pack(samples[:3], CPU)
    [(trunk, alike, another)] = packed.layout
    assert trunk == samples[0].images[0].start, "only the text before the images is common to all"
    assert isinstance(alike, tuple) and len(alike) == 3 and isinstance(another, int)
    assert len(packed.images) == 4 and packed.position_ids.shape == (3, 1, packed.input_ids.numel())
    apart = pack(samples[:3], CPU, merge=False)
    assert len(apart.images) == 6


def test_a_sampled_image_id_is_an_ordinary_token(
    make_trainer: MakeTrainer, make_sample: MakeSample, reference: PreTrainedModel
) -> None:
    sample = make_sample(picture(40, 30), seed=5)
    mark = reference.config.image_token_id
    sample.tokens[sample.prompt_length + 3] = mark
    found = make_trainer().log_probs([sample])[0]
    other = copy.deepcopy(reference)
    PlacedImages(other).at = torch.arange(sample.images[0].start, sample.images[0].end)
    assert found == pytest.approx(reference_log_probs(other, sample), abs=1e-5)


def test_a_step_trains_the_vision_part_and_transformers_reads_the_export(
    make_trainer: MakeTrainer, samples: list[Sample], vision_folder: Path, tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.train(0, samples)
    trainer.export_weights(str(tmp_path / "out"), 1)
    before = load_file(vision_folder / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name].float())}
    assert {"model.visual.patch_embed.proj.weight", "model.language_model.embed_tokens.weight"} <= moved
    assert gap(trainer.log_probs(samples), samples, load_reference(tmp_path / "out")) < 1e-5


def test_adapters_train_with_images_and_merge(
    make_trainer: MakeTrainer, samples: list[Sample], tmp_path: Path
) -> None:
    trainer = make_trainer(use_lora=True, lora_rank=4, lora_alpha=32.0, lora_dropout=0.0, lr=1e-2)
    before = trainer.log_probs(samples)
    trainer.train(0, samples)
    after = trainer.log_probs(samples)
    assert before != after
    trainer.export_weights(str(tmp_path / "out"), 1)
    assert gap(after, samples, load_reference(tmp_path / "out")) < 1e-4


def test_unsupported_settings_with_images_are_rejected(
    make_trainer: MakeTrainer, make_sample: MakeSample, samples: list[Sample], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="does not support images"):
        make_trainer(advantage_estimator="ppo")
    with pytest.raises(ConfigError, match="does not support"):
        make_trainer(train_backend="megatron")
    trainer = make_trainer()
    changed = Path(samples[0].images[0].file)
    changed.write_bytes(changed.read_bytes() + b"x")
    with pytest.raises(DataError, match="not what it was"):
        trainer.log_probs(samples[:1])
    changed.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        trainer.log_probs(samples[:1])
    place = ImagePlace(1, 4, (1, 4, 4), "gone")
    for wrong, said in (
        ({"tokens": [1, 2, 3], "response_length": 1, "images": [place]}, "leaves the 3 tokens"),
        ({"tokens": [1] * 9, "response_length": 6, "images": [place]}, "ends behind it"),
        ({"tokens": [1] * 9, "response_length": 8, "images": [place]}, "tokens are trained"),
        ({"tokens": [1] * 9, "images": [place], "teacher_tokens_candidates": [[1] * 9]}, "reads no images"),
        (
            {"tokens": [1] * 9, "images": [{"start": 1, "length": 3, "grid": [1, 4, 4], "file": ""}]},
            "do not fit",
        ),
    ):
        with pytest.raises(DataError, match=said):
            Sample(**wrong)


def test_a_teacher_of_the_plain_prompt_reads_its_images(
    make_trainer: MakeTrainer, samples: list[Sample]
) -> None:
    trainer = make_trainer(
        loss_spec_path="openclaw_combine.loss:topk_select",
        distill_topk=4,
        distill_subset_mode="teacher",
        hint_selection="shortest",
        teacher_source="trainer",
    )
    metrics = trainer.train(0, samples)
    assert metrics["opd_teacher_student_logp_topk_abs_mean"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["opd_subset_size"] == pytest.approx(4.0), "the teacher reads every sample"


def test_a_trainer_without_a_vision_model_rejects_images(
    training_args: MakeTrainingArgs, write_qwen3: Any, samples: list[Sample], tmp_path: Path
) -> None:
    from slime.training.fsdp import FSDPTrainer

    blind = FSDPTrainer(training_args(write_qwen3(tmp_path / "blind", 0, vocab_size=320)))
    try:
        with pytest.raises(DataError, match="has images"):
            blind.train(0, samples)
    finally:
        blind.close()


def test_a_sample_with_images_round_trips_through_plain_data(samples: list[Sample]) -> None:
    assert [Sample.from_dict(one.to_dict()) for one in samples] == samples
    assert samples[0].to_dict()["images"][0]["start"] == samples[0].images[0].start
