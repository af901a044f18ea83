"""Tests images from messages and environments through a rollout to a step of the trainer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slime.agents import Action, EpisodeLimits, Observation, Outcome, Start, Task, agent
from slime.agents.conversation import Conversation
from slime.arguments import Arguments, parse_args
from slime.errors import ConfigError, DataError, EngineError
from slime.rollout.dataset import load_dataset, training_spec
from slime.rollout.event_loop import run
from slime.rollout.generate import generate
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import GenerateState, sampling_params
from slime.types import Sample
from slime.vision.pictures import marked_ids
from slime.vision.place import ImagePlace
from tests import MODEL
from tests.fakes.engine_process import Server
from tests.fakes.fixtures import MakeTrainer
from tests.fakes.sglang_pictures import expanded
from tests.fakes.tiny_vision_model import message, picture, reference_log_probs
from tests.slime.rollout.conftest import record_engine

if TYPE_CHECKING:
    from transformers import PreTrainedModel


ArgsOf = Callable[..., Arguments]

ASKED = [message("what is this?", picture(40, 30, 1))]
STOPS = [word for token in range(9, 320, 4) for word in ("--rollout-stop-token-ids", str(token))]


@pytest.fixture(scope="module")
def server(vision_folder: Path) -> Iterator[Server]:
    running = Server(vision_folder, "--chunked-prefill-size", "32")
    yield running
    running.close()


@pytest.fixture
def rollout_args(vision_folder: Path, tmp_path: Path) -> ArgsOf:
    """f(*words): arguments of a run over one prompt with a picture."""
    rows = tmp_path / "prompts.jsonl"
    rows.write_text(json.dumps({"input": ASKED}) + "\n")

    def make(*words: str) -> Any:
        common = [
            "--hf-checkpoint",
            str(vision_folder),
            "--run-dir",
            str(tmp_path / "run"),
            "--rm-type",
            "random",
        ]
        common += ["--prompt-data", str(rows), "--apply-chat-template", "--rollout-temperature", "0.9"]
        common += ["--disable-rewards-normalization"]
        return parse_args([*common, "--rollout-max-response-len", "60", *STOPS, *words], env={})

    return make


class Showing:
    """An environment that shows another picture after each answer."""

    async def reset(self, task: Task) -> Start:
        self.turn = 0
        return Start(ASKED)

    async def step(self, action: Action) -> Observation:
        self.turn += 1
        return Observation(
            [message(picture(30 + 9 * self.turn, 50, self.turn), "and now?")], done=self.turn == 3
        )

    async def evaluate(self) -> Outcome:
        return Outcome(1.0, True)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("per_turn", [False, True], ids=["one sample", "one a turn"])
def test_an_episode_with_images_is_trained_on_exactly_the_sampled_inputs(
    server: Server,
    rollout_args: ArgsOf,
    make_trainer: MakeTrainer,
    reference: PreTrainedModel,
    tmp_path: Path,
    per_turn: bool,
) -> None:
    record_engine(tmp_path / "run", server.url)
    args = rollout_args("--reward-key", "score")
    runner = SampleRunner(args, 0, sampling_params(args))
    runner.generate_function = agent(Showing, EpisodeLimits(turns=3), per_turn=per_turn)
    made = run(runner.run_sample(Sample(group_index=0, index=0, prompt="Begin.")))
    samples = made if per_turn else [made]
    assert [len(sample.images) for sample in samples] == ([1, 2, 3] if per_turn else [3]), samples[0].metadata
    for sample in samples:
        found = [a for a, kept in zip(sample.rollout_log_probs, sample.mask, strict=True) if kept]
        known = [
            a for a, kept in zip(reference_log_probs(reference, sample), sample.mask, strict=True) if kept
        ]
        assert found == pytest.approx(known, abs=1e-4)
    metrics = make_trainer(reward_key="score").train(0, [Sample.from_dict(one.to_dict()) for one in samples])
    assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4


def test_a_grpo_step_makes_rewarded_answers_to_an_image_likelier(
    server: Server, rollout_args: ArgsOf, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    record_engine(tmp_path / "run", server.url)
    args = rollout_args()
    [prompt] = load_dataset(training_spec(args)).prompts
    runner = SampleRunner(args, 0, sampling_params(args))
    group = [run(runner.run_sample(Sample(group_index=0, index=i, prompt=prompt.prompt))) for i in range(4)]
    assert len({sample.images[0].file for sample in group}) == 1, "processed once"
    for number, sample in enumerate(group):
        sample.reward = float(number % 2)
    trainer = make_trainer(disable_rewards_normalization=False, advantage_estimator="grpo", lr=1e-3)
    before = trainer.log_probs(group)
    metrics = trainer.train(0, group)
    assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4 and metrics["grad_norm"] > 0
    moved = [sum(b) - sum(a) for a, b in zip(before, trainer.log_probs(group), strict=True)]
    assert moved[1] + moved[3] > 0 > moved[0] + moved[2]


def asking(
    args: Arguments, monkeypatch: pytest.MonkeyPatch, prompt_tokens: int | None
) -> list[dict[str, Any]]:
    """Returns the bodies of requests to the engines of a run, each answered with one token."""
    bodies: list[dict[str, Any]] = []

    async def answer(body: dict[str, Any], timeout: float, interrupt: object) -> dict[str, Any]:
        bodies.append(body)
        meta: dict[str, Any] = {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[-1.0, 9, None]],
        }
        meta |= {} if prompt_tokens is None else {"prompt_tokens": prompt_tokens}
        return {"output_ids": [9], "meta_info": meta}

    monkeypatch.setattr(GenerateState.of(args).pool, "generate", answer)
    return bodies


def test_sglang_gets_the_images_and_a_different_prompt_length_is_rejected(
    rollout_args: ArgsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = rollout_args()
    args.rollout_backend = "sglang"
    bodies = asking(args, monkeypatch, None)
    sample = asyncio.run(generate(args, Sample(prompt=ASKED), sampling_params(args)))
    [body] = bodies
    assert body["image_data"] == [ASKED[0]["content"][1]["image_url"]["url"]]
    mark = GenerateState.of(args).tokenizer.encode("<|image_pad|>")[0]
    assert body["input_ids"].count(mark) == 1 and sample.tokens.count(mark) == sample.images[0].length > 1
    assert expanded(body["input_ids"], [sample.images[0].length], mark) == sample.tokens[:-1]
    asking(args, monkeypatch, 7)
    with pytest.raises(EngineError, match="read 7 tokens"):
        asyncio.run(generate(args, Sample(prompt=ASKED), sampling_params(args)))


def test_sglang_keeps_the_ids_of_a_prompt_with_several_pictures_and_sampled_turns() -> None:
    """It rebuilds exactly the trained ids; otherwise it would tokenize the text again and change sampled turns."""
    mark = 7
    places = [
        ImagePlace(2, 4, (1, 4, 4), "a"),
        ImagePlace(8, 1, (1, 2, 2), "b"),
        ImagePlace(9, 6, (1, 4, 6), "c"),
    ]
    ids = [1, 2, *[mark] * 4, 3, 4, *[mark] * 7, 5, 6]
    sent = marked_ids(ids, places)
    assert sent == [1, 2, mark, 3, 4, mark, mark, 5, 6]
    assert expanded(sent, [place.length for place in places], mark) == ids
    with pytest.raises(EngineError, match="4 image marks for 3 images"):
        marked_ids([*ids, mark], places)


def test_components_without_image_support_are_named(
    rollout_args: ArgsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = rollout_args()
    asking(args, monkeypatch, None)
    args.rollout_backend = "vllm"
    with pytest.raises(ConfigError, match="vllm takes no images"):
        asyncio.run(generate(args, Sample(prompt=ASKED), sampling_params(args)))
    args.hf_checkpoint = str(MODEL)
    with pytest.raises(ConfigError, match="these see: qwen3_vl"):
        asyncio.run(generate(args, Sample(prompt=ASKED), sampling_params(args)))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["https://example.org/a.png"], "not fetched"),
        (["data:image/png;base64,AAAA"], "cannot be read"),
        ([picture(40, 30), "<|image_pad|>"], "2 marks for 1 images"),
    ],
)
def test_an_invalid_image_is_rejected(
    rollout_args: ArgsOf, monkeypatch: pytest.MonkeyPatch, parts: list[str], said: str
) -> None:
    args = rollout_args()
    asking(args, monkeypatch, None)
    content = [
        {"type": "text", "text": one}
        if one.startswith("<")
        else {"type": "image_url", "image_url": {"url": one}}
        for one in parts
    ]
    with pytest.raises(DataError, match=said):
        asyncio.run(
            generate(args, Sample(prompt=[{"role": "user", "content": content}]), sampling_params(args))
        )


def test_old_images_are_replaced_by_text(rollout_args: ArgsOf) -> None:
    args = rollout_args()
    state = GenerateState.of(args)
    talk = Conversation(state.tokenizer, Start(ASKED), state.placed)
    for number in range(3):
        talk.add([9, 1], [message(picture(60, 60, number), "and now? " * 9)])
    whole = talk.ids()
    assert len(talk.images()) == len(talk.pictures()) == 4
    mark = state.tokenizer.encode("<|image_pad|>")[0]
    assert all(set(whole[image.start : image.end]) == {mark} for image in talk.images())
    talk.fold(len(whole) - 1)
    assert len(talk.images()) == len(talk.pictures()) == 3 and "image left out" in state.tokenizer.decode(
        talk.ids()
    )
    assert all(set(talk.ids()[image.start : image.end]) == {mark} for image in talk.images())


def test_the_newest_images_and_all_texts_are_kept(rollout_args: ArgsOf) -> None:
    args = rollout_args()
    state = GenerateState.of(args)
    talk = Conversation(state.tokenizer, Start(ASKED), state.placed)
    talk.keep_pictures(1)
    assert len(talk.images()) == 1, "what was shown last stays"
    for number in range(3):
        talk.add([9, 1], [message(picture(60, 60, number), f"number {number}")])
    pictures, mark = talk.pictures(), state.tokenizer.encode("<|image_pad|>")[0]
    for most in (3, 2, 1):
        talk.keep_pictures(most)
        assert talk.pictures() == pictures[-most:] and len(talk.images()) == most
        assert all(set(talk.ids()[image.start : image.end]) == {mark} for image in talk.images())
        text = state.tokenizer.decode(talk.ids())
        assert text.count("[image left out]") == 4 - most
        assert all(words in text for words in ("what is this?", "number 0", "number 1", "number 2"))
