"""Tests that the embedded engine samples with images from the distribution of transformers and the trainer."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import GenerateRequest, ModelLimits, RequestError
from slime.types import Sample
from slime.vision.files import ProcessedImage, read, read_bytes
from tests.fakes.fixtures import MakeTrainer
from tests.fakes.tiny_vision_model import picture, reference_log_probs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tests.slime.vision.conftest import MakeSample


Serve = Callable[..., EngineService]


@pytest.fixture
def service(vision_folder: Path) -> Iterator[Serve]:
    yield lambda **flags: EngineService(EmbeddedArguments(model_path=str(vision_folder), **flags))


def body(sample: Sample, **changes: object) -> dict[str, Any]:
    images = [
        {"start": image.start, "data": base64.b64encode(read_bytes(image.file)).decode()}
        for image in sample.images
        if image.start < sample.prompt_length
    ]
    params = {"max_new_tokens": 24, "temperature": 0.8, "ignore_eos": True, "seed": 3}
    prompt = sample.tokens[: sample.prompt_length]
    return {
        "input_ids": prompt,
        "image_data": images,
        "return_logprob": True,
        "sampling_params": params,
        **changes,
    }


def run(
    service: EngineService, sequences: list[Sequence], most: int = 200, retracted_after: int = -1
) -> None:
    """Steps in this thread until all have ended; after `retracted_after` steps all are retracted, as if the cache
    were full."""
    for sequence in sequences:
        service.engine._add(sequence)
    for number in range(most):
        if number == retracted_after:
            service.engine.scheduler.retract_all()
        if all(sequence.finish for sequence in sequences):
            return
        service.engine.step(EngineStep())
    raise AssertionError("the sequences do not end")


def sampled(sample: Sample, sequence: Sequence) -> Sample:
    """Returns the sample that a rollout makes of the answer."""
    prompt = sample.tokens[: sample.prompt_length]
    return Sample(
        tokens=prompt + sequence.output_ids,
        response_length=len(sequence.output_ids),
        rollout_log_probs=[float(one[0] or 0.0) for one in sequence.output.tokens],
        images=[image for image in sample.images if image.start < len(prompt)],
        temperature=0.8,
        reward=1.0,
    )


@pytest.mark.parametrize("flags", [{}, {"chunked_prefill_size": 7}])
def test_batched_image_and_text_answers_match_transformers_and_the_trainer(
    service: Serve,
    samples: list[Sample],
    reference: PreTrainedModel,
    make_trainer: MakeTrainer,
    flags: dict[str, int],
) -> None:
    """With small chunks images are read in parts; a retracted sequence reads its images again."""
    engine = service(**flags)
    sequences = [engine.sequence(GenerateRequest.model_validate(body(sample))) for sample in samples]
    run(engine, sequences, retracted_after=45 if flags else -1)
    assert not flags or any(one.retractions and one.images for one in sequences)
    answers = [sampled(sample, sequence) for sample, sequence in zip(samples, sequences, strict=True)]
    assert len({tuple(answer.tokens[-24:]) for answer in answers}) > 3, "the images are told apart"
    for answer in answers:
        assert answer.rollout_log_probs == pytest.approx(reference_log_probs(reference, answer), abs=1e-4)
    metrics = make_trainer().train(0, answers)
    assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4


def test_after_an_update_images_of_a_half_prefilled_prompt_are_processed_again(
    service: Serve, samples: list[Sample], make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    trainer = make_trainer(lr=3e-2)
    trainer.train(0, samples)
    checksum = trainer.export_weights(str(tmp_path / "out"), 1)
    engine = service(chunked_prefill_size=9)
    sequence = engine.sequence(GenerateRequest.model_validate(body(samples[0])))
    engine.engine._add(sequence)
    engine.engine.step(EngineStep())
    engine.weights._replace_weights = lambda install: (install(), engine.engine.scheduler.restart_prefills())  # type: ignore[func-returns-value]
    assert engine.weights.prepare(str(tmp_path / "out"), 1).checksum == checksum
    engine.weights.switch(1)
    while sequence.finish is None:
        engine.engine.step(EngineStep())
    answer = sampled(samples[0], sequence)
    assert sequence.restarts == 1 and sequence.images is not None and sequence.images.features is None
    assert answer.rollout_log_probs == pytest.approx(trainer.log_probs([answer])[0], abs=1e-4)


def test_prompt_log_probs_match_transformers(
    service: Serve, samples: list[Sample], reference: PreTrainedModel
) -> None:
    engine = service()
    scored = body(samples[0], logprob_start_len=0, sampling_params={"max_new_tokens": 0})
    sequence = engine.sequence(GenerateRequest.model_validate(scored))
    run(engine, [sequence])
    prompt = samples[0].tokens[: samples[0].prompt_length]
    whole = Sample(tokens=prompt, response_length=0, images=samples[0].images)
    behind = Sample(tokens=prompt, response_length=3, images=samples[0].images)
    assert len(sequence.input.tokens) == len(whole.tokens)
    found = [one[0] for one in sequence.input.tokens[-3:]]
    assert found == pytest.approx(reference_log_probs(reference, behind), abs=1e-4)


def test_invalid_images_are_rejected(service: Serve, make_sample: MakeSample) -> None:
    engine = service()
    good = body(make_sample(picture(40, 30), picture(60, 33)))
    first, second = good["image_data"]
    small = ProcessedImage(read(make_sample(picture(40, 30)).images[0].file).pixel_values[:, :5], (1, 8, 10))
    for images, said in (
        ([{**first, "data": "bm8="}], "no processed image"),
        ([{**first, "data": first["data"][:40]}], "image_data"),
        ([first, {**second, "start": first["start"] + 1}], "overlaps"),
        ([{**first, "start": len(good["input_ids"])}], "leaves the"),
        ([{**first, "data": base64.b64encode(small.to_bytes()).decode()}], "patches"),
    ):
        with pytest.raises(RequestError, match=said):
            engine.sequence(GenerateRequest.model_validate({**good, "image_data": images}))


def test_engines_that_take_no_images_reject_them() -> None:
    asked = GenerateRequest(input_ids=[5], image_data=[picture(40, 30)])
    with pytest.raises(RequestError, match="takes no images"):
        ModelLimits(context_length=100, vocabulary=320).check(asked, [5])


def test_each_mark_needs_a_picture(service: Serve, make_sample: MakeSample) -> None:
    asked = body(make_sample(picture(40, 30)))
    with pytest.raises(RequestError, match="4 marks for 1 pictures"):
        service().sequence(GenerateRequest.model_validate({**asked, "image_data": [picture(40, 30)]}))


def test_an_engine_without_a_vision_model_rejects_images(model_path: Path, make_sample: MakeSample) -> None:
    blind = EngineService(EmbeddedArguments(model_path=str(model_path)))
    asked = body(make_sample(picture(40, 30)))
    with pytest.raises(RequestError, match="does not support images"):
        blind.sequence(GenerateRequest.model_validate({**asked, "input_ids": [5] * len(asked["input_ids"])}))
