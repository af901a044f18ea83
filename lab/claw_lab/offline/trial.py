"""One trial: people talk to one untrained model until it has learned their preferences."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from claw_lab.offline.local_loop import ChatModel, LocalLoop, Talk
from claw_lab.offline.measures import (
    Replies,
    ask,
    drift,
    explicit_wishes,
    fresh_problems,
    greedy_accuracy,
    habits,
    preferences,
)
from claw_lab.offline.memory import Memory
from claw_lab.offline.methods import Setting
from openclaw.methods.hinted_prompt import with_memory
from openclaw_test.people.hostile import HostileSession, HostileUser
from openclaw_test.people.neutral import NeutralSession, NeutralUser
from openclaw_test.people.occasional import OccasionalUser
from openclaw_test.people.scripted_user import ScriptedUser, Session
from openclaw_test.people.tastes import Taste
from openclaw_test.people.wishes import Obedience, Split
from slime.training.core.distributed import join
from slime.training.fsdp.loading import load_model

AT_ONCE = 3
TARGET = 0.8
LATE = 40
"""Sessions of each person after which the model is measured in detail."""
IN_A_ROW = 3
Talker = Session | HostileSession | NeutralSession
Person = ScriptedUser | HostileUser | NeutralUser | OccasionalUser


@dataclass(frozen=True)
class Plan:
    """The people of a trial and its length.

    Attributes:
        tastes: of the people, who talk in turn, `at_once` sessions at a time; the model is measured after each such
            round.
        most: sessions of each person after which a trial ends without reaching the target.
        at_once: sessions at a time.
        who: gives true feedback on replies (honest), the opposite in one case of five (careless), none (neutral), or
            asks for a list in one session of five (occasional). All but the first are like the student otherwise.
    """

    tastes: tuple[Taste, ...]
    most: int = 60
    at_once: int = AT_ONCE
    who: Literal["honest", "careless", "neutral", "occasional"] = "honest"

    def people(self, seed: int) -> list[Person]:
        """Returns one person for each taste."""
        if self.who == "honest":
            return [ScriptedUser(seed, taste=taste) for taste in self.tastes]
        if self.who == "occasional":
            return [OccasionalUser(seed) for _ in self.tastes]
        if self.who == "neutral":
            return [NeutralUser(seed) for _ in self.tastes]
        return [HostileUser("careless", seed) for _ in self.tastes]

    @property
    def sessions_a_round(self) -> float:
        """Returns the sessions of each person in a round, which people with a common model share."""
        return self.at_once / len(self.tastes)

    @property
    def late(self) -> int:
        """Returns the sessions of each person after which the model is measured in detail."""
        return min(LATE, self.most)

    @property
    def rounds_a_look(self) -> int:
        """Returns the rounds between two measurements, in which each person has two sessions or more."""
        return math.ceil(2 / self.sessions_a_round)


@dataclass
class Progress:
    """Measurements by number of sessions of each person: mean preference over the people."""

    first_replies: dict[str, list[bool]] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    with_memory: list[tuple[float, float]] = field(default_factory=list)
    """As `curve`, with each person's stored preferences in their prompts."""
    late: dict[str, Any] | None = None

    @property
    def reached(self) -> float | None:
        """Returns the sessions of each person after which the preference first reached the target."""
        return next((count for count, value in self.curve if value >= TARGET), None)

    @property
    def pleased(self) -> float | None:
        """Returns the share of first replies that pleased, from a person's `AT_ONCE` + 1st session on; before it
        there was no feedback."""
        later = [value for replies in self.first_replies.values() for value in replies[AT_ONCE:]]
        return sum(later) / len(later) if later else None

    @property
    def in_a_row(self) -> float | None:
        """Returns the sessions of a person until three first replies in a row pleased, mean over the people; None if
        this did not happen for each."""
        counts = [_first_streak(pleased) for pleased in self.first_replies.values()]
        known = [count for count in counts if count is not None]
        return sum(known) / len(known) if known and len(known) == len(counts) else None


def _first_streak(pleased: Sequence[bool]) -> int | None:
    """Returns the number of values until `IN_A_ROW` in a row are true."""
    streak = 0
    for count, value in enumerate(pleased, 1):
        streak = streak + 1 if value else 0
        if streak == IN_A_ROW:
            return count
    return None


class Trial:
    """A trial; all its randomness follows from `seed`."""

    def __init__(self, chat: ChatModel, setting: Setting, plan: Plan, seed: int) -> None:
        self.chat, self.setting, self.plan, self.seed = chat, setting, plan, seed
        self.loop = LocalLoop(chat, setting, seed)
        self.memory = Memory() if setting.method.remembers else None
        self.people = plan.people(seed)
        self.progress = Progress()

    def run(self) -> dict[str, Any]:
        """Talks until the target is reached and everybody has had 40 sessions, at most `plan.most` sessions; returns
        the result."""
        started, sessions, rounds = time.monotonic(), 0.0, 0
        try:
            before, wishes, listed = self._look(rounds), self._wishes(), self._listed()
            blind = self._wishes("blind")
            while sessions < self.plan.late or (self.progress.reached is None and sessions < self.plan.most):
                changed = [
                    self._round(self.plan.at_once * (rounds + i)) for i in range(self.plan.rounds_a_look)
                ]
                rounds += len(changed)
                sessions = rounds * self.plan.sessions_a_round
                value = self._look(rounds) if any(changed) else self._last()
                self.progress.curve.append((sessions, value))
                if self.setting.memory:
                    self.progress.with_memory.append((sessions, self._look(rounds, remembering=True)))
                if self.progress.late is None and sessions >= self.plan.late:
                    self.progress.late = self._late(sessions, wishes, blind)
            wishes_kept = (
                [asdict(wish) for wish in self.loop.store.memory.wishes()] if self.setting.memory else []
            )
        finally:
            self.loop.close()
        return {
            "seed": self.seed,
            "sessions_to_preference": self.progress.reached,
            "sessions_to_three": self.progress.in_a_row,
            "preference_before": before,
            "listed_before": listed,
            "wishes_before": wishes.as_dict(),
            "blind_before": blind.as_dict(),
            "curve": self.progress.curve,
            "with_memory": self.progress.with_memory,
            "pleased": self.progress.pleased,
            "pleased_by_list": [one.pleased for one in self.people if isinstance(one, OccasionalUser)],
            "remembered": wishes_kept,
            "sessions": sessions,
            "updates": self.loop.version,
            "late": self.progress.late,
            "trained": self.loop.counts["samples"].get("trained", 0),
            "dropped": self.loop.counts["dropped"],
            "seconds": round(time.monotonic() - started, 1),
        }

    def _round(self, first: int) -> bool:
        """Runs `plan.at_once` sessions from opening to end, one turn of each at a time; returns whether the model (or
        its memory) has changed."""
        version, known = self.loop.version, list(self.memory.hints) if self.memory else []
        turns = [(first + i) % len(self.people) for i in range(self.plan.at_once)]
        sessions = [self.people[index].session() for index in turns]
        names = [self.plan.tastes[index].name for index in turns]
        live: list[tuple[Talker, Talk]] = [
            (session, Talk([], f"session-{first + i}", self.memory, person=names[i]))
            for i, session in enumerate(sessions)
        ]
        for session, talk in live:
            self.loop.follow(talk, session.opening)
        while live:
            live = self._turn(live)
            self.loop.learn()
            if self.memory is not None:
                self.memory.add(self.loop.hints)
        for index, session in zip(turns, sessions, strict=True):
            seen = self.progress.first_replies.setdefault(self.plan.tastes[index].name, [])
            seen.append(bool(session.satisfied_at_once))
        return self.loop.version != version or (self.memory is not None and self.memory.hints != known)

    def _turn(self, live: Sequence[tuple[Talker, Talk]]) -> list[tuple[Talker, Talk]]:
        going_on = []
        for (session, talk), text in zip(live, self.loop.say([talk for _, talk in live]), strict=True):
            message = session.next_message(text)
            if message is None:
                self.loop.end(talk)
            else:
                self.loop.follow(talk, message)
                going_on.append((session, talk))
        return going_on

    def _remember(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self.memory.put_into(messages) if self.memory else messages

    def _look(self, number: int, remembering: bool = False) -> float:
        """Returns the mean preference over the people on fresh problems; `remembering`: with each person's memory in
        the prompt."""
        number += 1000 * self.seed
        seed = random.Random(f"replies {number}").getrandbits(40)
        if remembering:
            shares = {taste.name: self._with_memory(taste, number, seed) for taste in self.plan.tastes}
        else:
            replies = ask(self.chat, fresh_problems(number), seed, remember=self._remember)
            shares = preferences(replies, self.plan.tastes)
        return round(sum(shares.values()) / len(shares), 4)

    def _listed(self) -> float:
        """Returns the share of lists among the replies of the detailed measurement, before any training."""
        return round(habits(self._late_replies())["listed"], 4)

    def _late_replies(self) -> Replies:
        number = 1000 * self.seed + 999
        seed = random.Random(f"replies {number}").getrandbits(40)
        return ask(self.chat, fresh_problems(number), seed, remember=self._remember)

    def _with_memory(self, taste: Taste, number: int, seed: int) -> float:
        wishes = self.loop.remembered(taste.name)
        replies = ask(
            self.chat, fresh_problems(number), seed, remember=lambda asked: with_memory(asked, wishes)
        )
        return preferences(replies, [taste])[taste.name]

    def _last(self) -> float:
        return self.progress.curve[-1][1] if self.progress.curve else self._look(0)

    def _wishes(self, split: Split = "report") -> Obedience:
        return explicit_wishes(self.chat, self.seed, split, remember=self._remember)

    def _late(self, sessions: float, wishes_before: Obedience, blind_before: Obedience) -> dict[str, Any]:
        """Returns the detailed measurements of the model after this number of sessions."""
        replies = self._late_replies()
        shares = preferences(replies, self.plan.tastes)
        measures = {"sessions": sessions, "updates": self.loop.version}
        measures |= {"preference": sum(shares.values()) / len(shares), "preferences": shares}
        measures |= habits(replies)
        measures["accuracy_greedy"] = greedy_accuracy(self.chat, self._remember)
        wishes, blind = self._wishes(), self._wishes("blind")
        measures |= wishes.as_dict() | {"wishes_kept": wishes.kept(wishes_before)}
        measures |= {"blind": blind.as_dict(), "blind_kept": blind.kept(blind_before)}
        if self.loop.trainer is not None:
            measures |= drift(
                self.loop.trainer.model,
                _start(self.chat.path, self.loop.args),
                replies,
                self.chat.temperature,
            )
        return {
            name: round(value, 4) if isinstance(value, float) else value for name, value in measures.items()
        }


def _start(model_path: str, args: Any) -> Any:
    """Returns the untrained model, without adapters."""
    mesh = join(0, 1, on_gpu=False, init_method=None, store=None, one_node=True)
    return load_model(model_path, mesh, args, trained=False)
