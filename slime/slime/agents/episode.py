"""One episode on the engine's token ids: sample, act, observe, until the environment or a limit ends it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from slime.agents.checks import checked_observation, checked_outcome, checked_start
from slime.agents.conversation import Conversation
from slime.agents.protocol import Action, Environment, Observation, Outcome, Start, Step, Task
from slime.agents.step_judge import StepJudge
from slime.agents.step_prompt import StepPrompt
from slime.agents.tool_calls import CallError, CallFormat
from slime.agents.trajectory import Turn, as_one, one_each
from slime.rollout.engine_pool import EngineRefused
from slime.rollout.generate import POOL_SHARE, add_answer, seed_of
from slime.rollout.state import GenerateState, current_interrupt
from slime.types import Sample, SampleStatus
from slime.vision.pictures import check_prompt, image_fields, pictures_of

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits and options of one episode.

    Attributes:
        turns: maximum answers of the model.
        parse_errors: consecutive invalid calls after which the episode is truncated.
        step_coef: weight of the scores of steps in the reward; None: --prm-step-coef.
        pictures: number of newest pictures in the prompt; older ones are removed (`Conversation.keep_pictures`), which
            needs one sample a turn. None: all.
        context: the action when the context is full. "stop": the episode ends as truncated. "fold": old observations
            are folded first (`Conversation.fold`), which needs one sample a turn.
    """

    turns: int = 16
    parse_errors: int = 3
    step_coef: float | None = None
    pictures: int | None = None
    context: Literal["stop", "fold"] = "stop"


@dataclass(frozen=True)
class StepJudging:
    """The judge of steps, and its prompt."""

    judge: StepJudge
    prompt: StepPrompt


@dataclass
class Episode:
    """Runs one episode. Records the model's tokens, log-probs and weight versions as sampled, and the environment's
    text with mask 0.

    Nothing is truncated: if the context is full, the episode ends, or old observations are folded as a whole. A parse
    error is reported to the model, counted, and trained on like any other turn.

    Attributes:
        per_turn: one sample a turn instead of one for all of them.
        ended_by: "environment", or the limit: "turns", "context", "answer" (it was too long), "parse_errors".
    """

    args: GenerationSide
    sample: Sample
    sampling_params: dict[str, Any]
    environment: Environment
    limits: EpisodeLimits
    format: CallFormat = field(default_factory=CallFormat)
    per_turn: bool = False
    judging: StepJudging | None = None
    turns: list[Turn] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    parse_errors: int = 0
    ended_by: str = "environment"

    async def run(self, task: Task) -> Sample | list[Sample]:
        """Returns the finished sample with its reward, or one sample a turn. An aborted sample has no reward.

        Raises:
            EngineRefused: the first prompt does not fit the context.
            EngineAway, EnvironmentAway: engine or environment did not answer; the sample must be started again.
        """
        state = GenerateState.of(self.args)
        start = checked_start(await self.environment.reset(task))
        conversation = await _read(start.messages, Conversation, state.tokenizer, start, state.placed)
        if self._room(conversation) < 1:
            raise EngineRefused(f"the task's {len(conversation.opening)} tokens leave no room for an answer")
        try:
            await self._play(state, conversation, task, start)
            if self.turns[-1].sampled.status is SampleStatus.ABORTED:
                self.sample.status = SampleStatus.ABORTED
                return self.sample
            outcome = checked_outcome(await self.environment.evaluate())
            verdicts = [None if turn.judging is None else await turn.judging for turn in self.turns]
        finally:
            for turn in self.turns:
                if turn.judging is not None:
                    turn.judging.cancel()
        return self._finished(outcome, verdicts)

    async def _play(self, state: GenerateState, conversation: Conversation, task: Task, start: Start) -> None:
        errors_in_a_row = 0
        while True:
            turn = await self._sample(state, conversation)
            self.turns.append(turn)
            self.scores.append(None)
            if turn.sampled.status is not SampleStatus.COMPLETED:
                full = self._room(conversation) <= turn.sampled.response_length
                self.ended_by = "context" if full else "answer"
                return
            observation = await self._act(turn, start, self._text(state, turn.sampled))
            assert turn.step is not None
            errors_in_a_row = errors_in_a_row + 1 if turn.step.error else 0
            self.scores[-1] = observation.step_score
            if observation.step_score is None:
                self._judge(task, turn)
            if observation.done:
                return
            ids = turn.sampled.tokens[turn.sampled.prompt_length :]
            turn.shown = await _read(observation.messages, conversation.add, ids, observation.messages)
            if self.limits.pictures is not None:
                conversation.keep_pictures(self.limits.pictures)
            if self.limits.context == "fold" and self.args.rollout_max_context_len is not None:
                conversation.fold(self.args.rollout_max_context_len - self.sampling_params["max_new_tokens"])
            limits = {
                "turns": len(self.turns) == self.limits.turns,
                "parse_errors": errors_in_a_row == self.limits.parse_errors,
                "context": self._room(conversation) < 1,
            }
            if any(limits.values()):
                self.ended_by = next(name for name, reached in limits.items() if reached)
                turn.sampled.status = SampleStatus.TRUNCATED
                return

    async def _act(self, turn: Turn, start: Start, text: str) -> Observation:
        try:
            action = Action(text, self.format.calls(text, start.tools))
        except CallError as error:
            self.parse_errors += 1
            observation = Observation(self.format.complaint(error))
            turn.step = Step(text, (), tuple(observation.messages), str(error))
            return observation
        observation = checked_observation(await self.environment.step(action))
        turn.step = Step(text, action.calls, tuple(observation.messages))
        return observation

    def _judge(self, task: Task, turn: Turn) -> None:
        """Requests a judge's verdict on a step while the episode continues."""
        if self.judging is None:
            return
        steps = [one.step for one in self.turns if one.step is not None]
        messages = self.judging.prompt(task, steps)
        if messages is not None:
            verdict = self.judging.judge.verdict(len(self.turns) - 1, messages)
            turn.judging = asyncio.create_task(verdict)

    async def _sample(self, state: GenerateState, conversation: Conversation) -> Turn:
        """Samples one answer of the model."""
        images = conversation.images()
        answer = Sample(index=self.sample.index, tokens=conversation.ids(), images=images)
        if self.sampling_params["temperature"] > 0:  # log-probs of greedy answers are at temperature 1
            answer.temperature = self.sampling_params["temperature"]
        params = {name: value for name, value in self.sampling_params.items() if value is not None}
        params["max_new_tokens"] = min(params["max_new_tokens"], self._room(conversation))
        params.setdefault("sampling_seed", seed_of(self.args.rollout_seed, self.sample, conversation.length))
        body = {"input_ids": answer.tokens, "sampling_params": params, "return_logprob": True}
        body |= image_fields(self.args.rollout_backend, answer.tokens, images, conversation.pictures())
        timeout = self.args.rollout_sample_timeout * POOL_SHARE
        generated = await state.pool.generate(body, timeout, current_interrupt.get())
        check_prompt(generated, images, len(answer.tokens))
        add_answer(answer, generated)
        return Turn(answer)

    @staticmethod
    def _text(state: GenerateState, answer: Sample) -> str:
        """Returns an answer without its end token."""
        text = state.tokenizer.decode(answer.tokens[answer.prompt_length :])
        return text.removesuffix(state.tokenizer.eos_token)

    def _room(self, conversation: Conversation) -> int:
        """Returns the number of tokens left in the context."""
        most = self.args.rollout_max_context_len
        return self.sampling_params["max_new_tokens"] if most is None else most - len(conversation.ids())

    def _finished(self, outcome: Outcome, verdicts: Sequence[dict[str, Any] | None]) -> Sample | list[Sample]:
        for place, verdict in enumerate(verdicts):
            if verdict is not None:
                self.scores[place] = verdict["mean_score"]
        coef = self.args.prm_step_coef if self.limits.step_coef is None else self.limits.step_coef
        composed = compose(outcome.score, self.scores, coef)
        reward: dict[str, Any] = {"score": composed.total, "acc": float(outcome.solved)}
        if self.judging is not None:
            reward["base_score"] = outcome.score
            reward |= {} if composed.step_mean is None else {"prm_step_score": composed.step_mean}
        samples = one_each(self.sample, self.turns) if self.per_turn else [self.sample]
        spans = [[0, sample.response_length] for sample in samples]
        spans = spans if self.per_turn else as_one(self.sample, self.turns)
        numbers = self._numbers(outcome) | ({} if self.per_turn else {"spans": spans})
        for place, sample in enumerate(samples):
            steps = slice(place, place + 1) if self.per_turn else slice(len(self.turns))
            sample.reward = dict(reward)
            sample.metadata["episode"] = copy.deepcopy(numbers)
            if self.judging is not None:
                sample.metadata["prm"] = {"steps": [verdict for verdict in verdicts[steps] if verdict]}
            if self.judging is not None or composed.step_mean is not None:
                sample.metadata["step_wise"] = {
                    "step_scores": self.scores[steps],
                    "step_scores_with_outcome": composed.steps[steps],
                    "step_token_spans": spans[steps],
                    **({"step_indices": [place]} if self.per_turn else {}),
                }
        return samples if self.per_turn else self.sample

    def _numbers(self, outcome: Outcome) -> dict[str, Any]:
        return {
            **outcome.details,
            "turns": len(self.turns),
            "tool_calls": sum(len(turn.step.calls) for turn in self.turns if turn.step is not None),
            "parse_errors": self.parse_errors,
            "ended_by": self.ended_by,
        }


async def _read(messages: object, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Calls the function, in a thread if the messages have pictures, whose decoding would block the event loop."""
    if pictures_of(messages):
        return await asyncio.to_thread(function, *args, **options)
    return function(*args, **options)


@dataclass(frozen=True)
class EpisodeReward:
    """Rewards of one episode; `total` is the mean of `steps`, if there are any.

    Attributes:
        total: reward of the whole episode.
        steps: reward of each step.
        step_mean: mean score of the steps with a score; None if there are none.
    """

    total: float
    steps: list[float]
    step_mean: float | None


def compose(outcome: float, scores: Sequence[float | None], coef: float) -> EpisodeReward:
    """Combines outcome and step scores. A step without a score, for example without a judge's answer, gets
    the mean of the others, which is neutral."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else None
    neutral = mean or 0.0
    steps = [outcome + coef * (neutral if score is None else score) for score in scores]
    return EpisodeReward(outcome + coef * neutral, steps, mean)
