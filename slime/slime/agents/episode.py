"""One episode over the engine's token ids: sample, act, observe, until the environment or a limit ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slime.agents.conversation import continuation, opening
from slime.agents.protocol import Action, Environment, Observation, Outcome, Start, Task
from slime.agents.tool_calls import CallError, CallFormat
from slime.rollout.engine_pool import EngineRefused
from slime.rollout.generate import POOL_SHARE, add_answer, seed_of
from slime.rollout.state import GenerateState, current_interrupt
from slime.types import Sample, SampleStatus

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide


@dataclass(frozen=True)
class EpisodeLimits:
    """Of one episode.

    Attributes:
        turns: answers of the model.
        parse_errors: calls in a row that cannot be made, after which the episode is cut off.
        step_coef: weight of the mean step score in the scalar reward, and of each in its step's.
    """

    turns: int = 16
    parse_errors: int = 3
    step_coef: float = 1.0


@dataclass
class Episode:
    """Writes one trajectory into `sample`: the model's tokens with their log-probs and weight versions as sampled, what
    the environment showed with mask 0. A turn ends where the model ends it.

    Context policy: stop. What does not fit into the context is never cut: the episode ends as truncated and is evaluated.
    A parse error is answered to the model, counted, and trained on like any other turn.

    Attributes:
        spans: [start, end) of each turn in the response. step_scores: of each; None without.
    """

    args: GenerationSide
    sample: Sample
    sampling_params: dict[str, Any]
    environment: Environment
    limits: EpisodeLimits
    format: CallFormat = field(default_factory=CallFormat)
    spans: list[list[int]] = field(default_factory=list)
    step_scores: list[float | None] = field(default_factory=list)
    parse_errors: int = 0
    calls: int = 0

    async def run(self, task: Task) -> Sample:
        """The finished sample with its reward, or an aborted one without.

        Raises:
            EngineRefused: the opening alone does not fit the context.
            EngineAway, EnvironmentAway: nobody answered; the sample must be begun anew.
        """
        state, sample = GenerateState.of(self.args), self.sample
        start = await self.environment.reset(task)
        sample.tokens = opening(state.tokenizer, start)
        if self._room() < 1:
            raise EngineRefused(f"the task's {len(sample.tokens)} tokens leave no room for an answer")
        if self.sampling_params["temperature"] > 0:  # greedy log-probs are those of temperature 1
            sample.temperature = self.sampling_params["temperature"]
        await self._turns(state, start)
        if sample.status is SampleStatus.ABORTED:
            return sample
        return self._rewarded(await self.environment.evaluate())

    async def _turns(self, state: GenerateState, start: Start) -> None:
        sample, errors_in_a_row = self.sample, 0
        while True:
            text = await self._sampled(state)
            if sample.status is not SampleStatus.COMPLETED:
                return
            try:
                seen = await self._acted(Action(text, self.format.calls(text, start.tools)))
                errors_in_a_row = 0
            except CallError as error:
                self.parse_errors += 1
                errors_in_a_row += 1
                seen = Observation(self.format.complaint(error))
            self.step_scores.append(seen.step_score)
            if seen.done:
                return
            shown = continuation(state.tokenizer, seen.messages)
            last = len(self.spans) == self.limits.turns or errors_in_a_row == self.limits.parse_errors
            if last or self._room() <= len(shown):
                sample.status = SampleStatus.TRUNCATED
                return
            sample.append_response_tokens(shown, None, trainable=False)

    async def _acted(self, action: Action) -> Observation:
        self.calls += len(action.calls)
        return await self.environment.step(action)

    async def _sampled(self, state: GenerateState) -> str:
        """One turn of the model, appended; its text without the token that ends it."""
        sample, begin = self.sample, self.sample.response_length
        params = {name: value for name, value in self.sampling_params.items() if value is not None}
        params["max_new_tokens"] = min(params["max_new_tokens"], self._room())
        params.setdefault("sampling_seed", seed_of(self.args.rollout_seed, sample))
        body = {"input_ids": sample.tokens, "sampling_params": params, "return_logprob": True}
        timeout = self.args.rollout_sample_timeout * POOL_SHARE
        add_answer(sample, await state.pool.generate(body, timeout, current_interrupt.get()))
        self.spans.append([begin, sample.response_length])
        ids = sample.tokens[sample.prompt_length + begin :]
        return state.tokenizer.decode(ids).removesuffix(state.tokenizer.eos_token)

    def _room(self) -> int:
        """Tokens that the context still takes."""
        most = self.args.rollout_max_context_len
        return self.sampling_params["max_new_tokens"] if most is None else most - len(self.sample.tokens)

    def _rewarded(self, outcome: Outcome) -> Sample:
        known = [score for score in self.step_scores if score is not None]
        coef, mean = self.limits.step_coef, sum(known) / len(known) if known else 0.0
        sample = self.sample
        sample.reward = {"score": outcome.score + coef * mean, "acc": float(outcome.solved)}
        sample.metadata["episode"] = {
            **outcome.details,
            "turns": len(self.spans),
            "tool_calls": self.calls,
            "parse_errors": self.parse_errors,
            "spans": self.spans,
        }
        if known:
            scores = [score or 0.0 for score in self.step_scores]
            scores += [0.0] * (len(self.spans) - len(scores))
            sample.metadata["step_wise"] = {
                "step_scores": scores,
                "step_scores_with_outcome": [outcome.score + coef * score for score in scores],
                "step_token_spans": self.spans,
            }
        return sample
