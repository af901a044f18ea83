"""The loop without Ray and HTTP: the gateway's turns, store, judge, method, trainer and engine, one after another.

Decisions are made by the product's code: prompts and parsers of the gateway, the rollout store with its states and
leases, the rules judge through the judge worker's code, the method's hook, slime's trainer. The processes between
them are left out: an update is live before the next message (or `Setting.behind` updates later), and only full
batches are trained.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from claw_lab.offline.local_engine import LocalEngine, Reply
from claw_lab.offline.local_judge import LocalJudge
from claw_lab.offline.memory import Memory
from claw_lab.offline.methods import Setting
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.canaries import Canaries
from openclaw.gateway.exchange import Completion
from openclaw.gateway.gateway import Prompt, inject, not_yet_stated, prefix_still_valid
from openclaw.methods.hinted_prompt import with_memory
from openclaw.sessions.transcript import Transcript, next_state
from openclaw.store import RolloutStore
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.pipeline import BatchPipeline
from openclaw.types import Message, NewTurn, SampleRecord, Turn
from slime.arguments import parse_args
from slime.hooks import load_hook
from slime.rollout.post_process import post_processed
from slime.training.fsdp import FSDPTrainer
from slime.training.fsdp.model import gather_weights
from slime.types import Sample

MAX_NEW_TOKENS = 200


class ChatModel:
    """A model folder with its chat interface: prompts in ids, answers as messages. Shared by all trials of a
    process."""

    def __init__(self, model_path: str) -> None:
        folder = ModelFolder.read(Path(model_path))
        self.path = model_path
        self.temperature = folder.temperature or 1.0
        tokenizer = Tokenizer(folder.path)
        self.format = ChatFormat(folder, tokenizer)
        tokenizer.read_text_as_plain(lambda: probe(self.format))
        self.engine = LocalEngine(model_path)

    def answer(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], temperature: float | None = None
    ) -> list[Reply]:
        """Returns one reply for each prompt; `temperature` None is the model's own."""
        heat = self.temperature if temperature is None else temperature
        return self.engine.generate(prompts, seeds, heat, MAX_NEW_TOKENS)

    def read(self, prompt: list[int], reply: Reply) -> Message:
        """Returns the assistant message that a client gets."""
        parser, answer = self.format.parser(tools=False), Completion([])
        parser.begin(prompt, None)
        answer.add(parser.feed(reply.ids))
        answer.add(parser.finish())
        answer.complete(reply.finish)
        return answer.message()


@dataclass
class Talk:
    """One conversation: the messages so far, its last turn, the preferences in its prompts, and the person."""

    messages: list[Message]
    session_id: str
    memory: Memory | None = None
    last: Turn | None = None
    person: str | None = None


class _CanaryModel:
    """The newest weights for canaries: the engine answers, the trainer computes log-probs. With `Setting.behind` these
    weights do not answer people yet."""

    def __init__(self, chat: ChatModel, trainer: FSDPTrainer, version: int) -> None:
        self._chat, self._trainer, self._version = chat, trainer, version

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        seeds = [random.Random(f"canary {seed} of {turn.messages} under {self._version}").getrandbits(40)]
        return self._chat.answer([prompt_ids], seeds)[0].ids, self._version

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        sample = Sample(tokens=prompt_ids + ids, response_length=len(ids), temperature=1.0)
        return sum(self._trainer.log_probs([sample])[0])


class LocalLoop:
    """One policy that trains while people talk to it. Close it at the end.

    Args:
        chat: the model; its engine is set back to the first weights.
        setting: method and flags.
        seed: of the replies and the trainer.
    """

    def __init__(self, chat: ChatModel, setting: Setting, seed: int) -> None:
        self.chat, self.setting = chat, setting
        self._folder = tempfile.TemporaryDirectory(prefix="learning-")
        self.args = parse_args(setting.flags(chat.path, self._folder.name, seed), env={})
        self.trainer = FSDPTrainer(self.args) if setting.method.flags is not None else None
        chat.engine.reset()
        self.store = RolloutStore(self._folder.name)
        self.pipeline = BatchPipeline(self.store, HookSettings.of(self.args))
        self._runner = asyncio.Runner()
        self._judge = LocalJudge(self.store, setting.method.hook, setting.method.votes, self.args)
        self._requests = seed * 1_000_003
        self.rollouts = 0
        self.version = 0
        self._coming: list[tuple[int, int, dict[str, Tensor]]] = []
        self.metrics: list[dict[str, float]] = []
        self.hints: list[str] = []
        self.counts: dict[str, dict[str, int]] = {}
        self.store.versions.weights_live(-1, 0, None, True, None, None)

    def close(self) -> None:
        self.counts = self.store.status.counts()
        self._judge.close()
        self._runner.close()
        self.store.close()
        self._folder.cleanup()

    def say(self, talks: Sequence[Talk]) -> list[str]:
        """Answers everybody's last message in one batch; returns the texts that the people read."""
        prompts = [self._prompt(talk) for talk in talks]
        replies = self.chat.answer([prompt.ids for prompt in prompts], [self._seed() for _ in talks])
        read = []
        for talk, prompt, reply in zip(talks, prompts, replies, strict=True):
            message = self.chat.read(prompt.ids, reply)
            self._record(talk, prompt, reply, message)
            read.append(str(message["content"] or ""))
        return read

    def learn(self) -> int:
        """Judges answered turns and trains on every full batch; returns the number of updates."""
        self.hints = self._runner.run(self._judge.judge_answered())
        updates = 0
        while self.trainer is not None and (records := self.pipeline.next.take_full(self.rollouts)):
            self._update(self.trainer, records)
            updates += 1
        if updates and self.setting.memory:
            self._runner.run(self._look_at_canaries(self.trainer))
        return updates

    async def _look_at_canaries(self, trainer: FSDPTrainer) -> None:
        """Records the canaries' results for all preferences under the live version."""
        canaries = Canaries(self.store, self.chat.format, _CanaryModel(self.chat, trainer, self.version))
        for person in await canaries.due(self.version):
            await canaries.look(person, self.version)

    def _update(self, trainer: FSDPTrainer, records: list[SampleRecord]) -> None:
        rows = self.pipeline.prepare(records, self.rollouts).rows
        samples = [Sample.from_dict(row) for row in rows]
        process = load_hook(self.args, "custom_reward_post_process_path")
        trained = trainer.train(self.rollouts, post_processed(self.args, samples, process, None))
        self.metrics.append(trained)
        self.version += 1
        weights = gather_weights(trainer.model, None, keep=True)
        self._coming.append((self.rollouts, self.version, {k: v.clone() for k, v in weights.items()}))
        if len(self._coming) > self.setting.behind:
            self._go_live(*self._coming.pop(0))
        trainer.version = self.version
        self.rollouts += 1

    def _go_live(self, rollout_id: int, version: int, weights: dict[str, Tensor]) -> None:
        self.chat.engine.install(weights, version)
        self.store.versions.weights_live(rollout_id, version, version - 1, False, None, None)

    def follow(self, talk: Talk, text: str, role: str = "user") -> None:
        """Adds a message of the person (or, as `role`, of a tool), which is also the next state of the last turn."""
        talk.messages = [*talk.messages, {"role": role, "content": text}]
        if talk.last is not None:
            start = len(talk.messages) - 1
            self.store.turns.answer(talk.last.id, next_state(talk.messages, start))

    def end(self, talk: Talk) -> None:
        self.store.sessions.end(talk.session_id)

    def _seed(self) -> int:
        self._requests += 1
        return self._requests

    def remembered(self, person: str | None) -> list[str]:
        """Returns the preferences in a person's prompts."""
        known = self.setting.memory and person is not None
        return [wish.text for wish in self.store.memory.remembered(person or "")] if known else []

    def _prompt(self, talk: Talk) -> Prompt:
        """Returns the prompt as the gateway makes it: the last turn's own ids and the new ones, or a full
        rendering."""
        last, render = talk.last, self.chat.format.render
        if talk.memory is not None:
            return Prompt(render(talk.memory.put_into(talk.messages), None, True), "full")
        wishes = self.remembered(talk.person)
        unspoken = not_yet_stated(wishes, talk.messages)
        messages_since = talk.messages[len(last.messages) + 1 :] if last is not None else []
        if last is not None and prefix_still_valid(last, wishes, messages_since):
            new, stand = inject(messages_since, unspoken, last.memory or ())
            ids = self.chat.format.bridge(last.prompt_ids, last.completion_ids, new, None, True)
            if ids is not None:
                return Prompt(ids, "bridge", stand if self.setting.memory else None)
        ids = render(with_memory(talk.messages, unspoken), None, True)
        return Prompt(ids, "full", unspoken if self.setting.memory else None)

    def _record(self, talk: Talk, prompt: Prompt, reply: Reply, message: Message) -> None:
        turn_id = uuid.uuid4().hex
        turn = NewTurn(
            id=turn_id,
            completion_id=f"chatcmpl-{turn_id}",
            session_id=talk.session_id,
            person=talk.person,
            messages=talk.messages,
            response_message=message,
            prompt_ids=prompt.ids,
            completion_ids=reply.ids,
            completion_log_probs=reply.log_probs,
            version_spans=reply.spans,
            sampling={"temperature": self.chat.temperature, "enable_thinking": True},
            finish_reason=reply.finish,
            transcript_digest=Transcript.of(talk.messages).with_answer(message),
            parent_id=talk.last.id if talk.last else None,
            render_mode=prompt.mode,
            memory=None if prompt.memory is None else list(prompt.memory),
            tokenizer_fingerprint=self.chat.format.tokenizer.fingerprint,
            template_fingerprint=self.chat.format.fingerprint,
        )
        talk.last = self.store.turns.record(turn)
        sent = {"role": "assistant", "content": message["content"]}
        talk.messages = [*talk.messages, sent]
