"""People who talk at random, use each other's ids, and check what they get for words of others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from claw_lab.benchmarks.crosstalk.engine import RememberingEngine
from claw_lab.benchmarks.crosstalk.words import Findings, Owner, Words

COMMON, ADMIN, SERVED = "key-common", "key-admin", "tiny-claw"
NOT_FOUND = (401, 403, 404)
AWAY_S = 600.0
"""Seconds for which a request is repeated while the gateway is killed and started again."""
OPEN = 3
"""Conversations of a person at a time."""
LONGEST = 5
"""Turns of a conversation."""
KEPT = 40
"""Newest answers of a person that others try to use."""
OPENINGS = ("Hello", "Tom has 12 apples and buys 7 more. How many?", "How many days are in May?")
"""Everybody begins with the same words, so that histories of several people are equal."""
REPLIES = (
    "Thanks, that is what I wanted.", "No lists, please. My word is {}.", "Shorter, please, {}.",
    "That is wrong. Remember {}.", "My word is {}. And 3 more?", "Please write numbered lists, always for {}.",
)  # fmt: skip
"""Continuations; `{}` is the person's word."""


@dataclass
class Talk:
    """A conversation. `session`: the id in its requests; None: it is matched by its words."""

    session: str | None
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: str | None = None


@dataclass
class Person:
    """A person's state. `word` is sent to the model, `unstored` only in requests with X-Train: off; `answers`:
    completion ids, `sessions`: session ids that only this person uses."""

    owner: Owner
    word: str
    unstored: str
    talks: list[Talk] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {key_of(self.owner.key)}"}

    @property
    def named(self) -> dict[str, str]:
        """Returns the fields of a request that name the person."""
        return {"user": self.owner.user} if self.owner.user else {}


def key_of(name: str) -> str:
    return f"key-{name}" if name else COMMON


Act = Callable[["Town", Person], Coroutine[Any, Any, None]]


class Town:
    """Sends the requests of all people, and counts what they get.

    Attributes:
        turns: answered requests for an answer.
        acts: by name. failures: other statuses than expected, by act and status.
    """

    def __init__(
        self, url: str, words: Words, engine: RememberingEngine, findings: Findings, chance: random.Random
    ) -> None:
        self.url, self.words, self.engine, self.findings, self.chance = url, words, engine, findings, chance
        self.people: list[Person] = []
        self.turns = 0
        self.acts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.last_failure = ""
        self._weights = [weight for _, weight in ACTS.values()]

    async def __aenter__(self) -> Town:
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.close()

    def welcome(self, owner: Owner) -> None:
        person = Person(owner, self.words.new(owner), self.words.new(owner))
        self.words.unstored.add(person.unstored)
        self.people.append(person)

    def begin_again(self, person: Person) -> None:
        """Gives a forgotten person new words, without the old conversations."""
        word, unstored = self.words.new(person.owner), self.words.new(person.owner)
        self.words.unstored.add(unstored)
        person.word, person.unstored = word, unstored
        person.talks, person.answers, person.sessions = [], [], []

    async def act(self, person: Person) -> None:
        """Does something at random as this person."""
        (name,) = self.chance.choices(list(ACTS), self._weights)
        self.acts[name] += 1
        await ACTS[name][0](self, person)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: object = None, **rest: Any
    ) -> tuple[int, str]:
        """Returns status and text of a response; repeats the request while the gateway does not answer. Raises
        TimeoutError."""
        headers = {**headers, "Idempotency-Key": uuid.uuid4().hex}
        async with asyncio.timeout(AWAY_S):
            while True:
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    async with self.http.request(
                        method, f"{self.url}{path}", headers=headers, json=body, **rest
                    ) as answer:
                        return answer.status, await answer.text()
                await asyncio.sleep(0.05)

    def check(self, place: str, text: str, person: Person, allowed: str | None = None) -> None:
        """Notes the words of others in what a person got."""
        marked = self.words.in_text(text)
        if marked - {person.word, allowed}:
            owners = ", ".join(sorted(str(self.words.owners[word]) for word in marked))
            self.findings.add(place, f"{person.owner} got words of {owners}")

    def failed(self, act: str, status: int, text: str) -> None:
        self.failures[f"{act}: {status}"] += 1
        self.last_failure = text[:300]

    def other(self, person: Person) -> Person | None:
        """Returns a person with another key who has answers."""
        others = [one for one in self.people if one.owner.key != person.owner.key and one.answers]
        return self.chance.choice(others) if others else None

    async def ask(
        self, person: Person, path: str, body: dict[str, Any], headers: Mapping[str, str] | None = None,
        allowed: str | None = None, expected: tuple[int, ...] = (200,),
    ) -> tuple[str, str] | None:  # fmt: skip
        """Returns the completion id and the text of an answer, after checking prompt and answer; None if there is
        none."""
        sent = {**person.named, "max_tokens": 40, **body}
        if path == "/v1/messages" and (user := sent.pop("user", None)):
            sent["metadata"] = {"user_id": user}
        status, text = await self.send("POST", path, {**person.headers, **(headers or {})}, sent)
        self.check("answer", text, person, allowed)
        if status != 200:
            if status not in expected:
                self.failed(path, status, text)
            return None
        self.turns += 1
        answer_id, text = read_answer(text, bool(sent.get("stream")))
        self.check("answer", text, person, allowed)
        seen = self.engine.seen.pop(answer_id.rpartition("-")[2].rpartition("_")[2], None)
        if seen is not None:
            if seen.words - {person.word, allowed}:
                self.findings.add("prompt", f"{person.owner}'s request had {sorted(seen.words)}")
            if seen.adapter not in (None, person.owner.adapter):
                self.findings.add("adapter", f"{seen.adapter} answered {person.owner}")
        return answer_id, text


def read_answer(text: str, streamed: bool) -> tuple[str, str]:
    """Returns the completion id and the text of an answer of any API."""
    if streamed:
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        parts = [choice["delta"].get("content") or "" for one in events for choice in one.get("choices", ())]
        return str(events[0].get("id", "")), "".join(parts)
    body = json.loads(text)
    if "choices" in body:
        return str(body["id"]), str(body["choices"][0]["message"].get("content") or "")
    parts = (
        body["content"] if "content" in body else [p for i in body["output"] for p in i.get("content", ())]
    )
    return str(body["id"]), "".join(part.get("text", "") for part in parts)


async def talk(town: Town, person: Person) -> None:
    """Continues a conversation, or begins one: with a session id, without one, or with an id that all people use."""
    chance = town.chance
    if not person.talks or (len(person.talks) < OPEN and chance.random() < 0.4):
        session = chance.choice([None, uuid.uuid4().hex, uuid.uuid4().hex, "main"])
        person.talks.append(Talk(session))
        if session not in (None, "main"):
            person.sessions = [*person.sessions, str(session)][-KEPT:]
    one = chance.choice(person.talks)
    text = chance.choice(REPLIES).format(person.word) if one.messages else chance.choice(OPENINGS)
    body: dict[str, Any] = {"session_id": one.session} if one.session else {}
    path = chance.choice(["/v1/chat/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"])
    messages = [*one.messages, {"role": "user", "content": text}]
    if path == "/v1/responses":
        known = one.last is not None and chance.random() < 0.5
        body |= {"input": text, "previous_response_id": one.last} if known else {"input": messages}
        body["max_output_tokens"] = 40
    else:
        body |= {"messages": messages, "stream": path == "/v1/chat/completions" and chance.random() < 0.5}
    twice = chance.random() < 0.03
    asked = [town.ask(person, path, body) for _ in range(1 + twice)]
    answer = (await asyncio.gather(*asked))[-1]
    if answer is None or len(messages) >= 2 * LONGEST - 1:
        person.talks = [other for other in person.talks if other is not one]
    if answer is not None:
        one.messages, one.last = [*messages, {"role": "assistant", "content": answer[1]}], answer[0]
        person.answers = [*person.answers, answer[0]][-KEPT:]


async def talk_aside(town: Town, person: Person) -> None:
    """Sends a request of its own: a side turn, or one that must not be stored, or that names another's model."""
    chance, other = town.chance, town.other(person)
    kind = chance.choice(["side", "off", "model"])
    messages = [{"role": "user", "content": chance.choice(REPLIES).format(person.word)}]
    body: dict[str, Any]
    if kind == "off":
        messages[0]["content"] = f"My word is {person.unstored}."
        await town.ask(
            person, "/v1/chat/completions", {"messages": messages}, {"X-Train": "off"}, person.unstored
        )
    elif kind == "side":
        body = {"messages": messages, "turn_type": "side", "session_id": chance.choice(["main", "s"])}
        await town.ask(person, "/v1/chat/completions", body)
    elif other is not None and other.owner.adapter:
        body = {"messages": messages, "model": f"{SERVED}:{other.owner.adapter}"}
        if await town.ask(person, "/v1/chat/completions", body, expected=NOT_FOUND) is not None:
            town.findings.add("adapter", f"{person.owner} used {other.owner.adapter}")


async def disconnect(town: Town, person: Person) -> None:
    """Closes the connection in the middle of an answer."""
    body = {"messages": [{"role": "user", "content": REPLIES[1].format(person.word)}], "stream": True}
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        async with town.http.post(
            f"{town.url}/v1/chat/completions", headers=person.headers, json={**person.named, **body}
        ) as answer:
            await answer.content.readany()
    town.turns += 1


async def judge(town: Town, person: Person) -> None:
    """Gives feedback with the own word, on an own answer."""
    if not person.answers:
        return
    body = {"completion_id": town.chance.choice(person.answers), "score": town.chance.choice([-1, 1])}
    body |= {"text": town.chance.choice(REPLIES[1:]).format(person.word)}
    status, text = await town.send("POST", "/v1/feedback", person.headers, {**person.named, **body})
    town.check("response", text, person)
    if status not in (200, 404, 409):
        town.failed("feedback", status, text)


async def end(town: Town, person: Person) -> None:
    """Ends a session, or deletes its content as the administrator."""
    if not person.sessions:
        return
    session = town.chance.choice(person.sessions)
    person.talks = [one for one in person.talks if one.session != session]
    if town.chance.random() < 0.5:
        body = {**person.named, "session_id": session, "session_done": True, "messages": []}
        status, text = await town.send("POST", "/v1/chat/completions", person.headers, body)
    else:
        person.sessions.remove(session)
        path = f"/admin/sessions/{session}/content"
        status, text = await town.send("DELETE", path, {"Authorization": f"Bearer {ADMIN}"})
    town.check("response", text, person)
    if status not in (200, 404):
        town.failed("end", status, text)


async def attack(town: Town, person: Person) -> None:
    """Uses ids of a person with another key."""
    other = town.other(person)
    if other is None:
        return
    answer, session = town.chance.choice(other.answers), town.chance.choice([*other.sessions, "main"])
    own = REPLIES[1].format(person.word)
    kind = town.chance.choice(
        ["previous", "session", "feedback", "reward", "turn", "trajectory", "end", "wish"]
    )
    body: dict[str, Any]
    if kind == "previous":
        body = {"input": own, "previous_response_id": answer}
        await town.ask(person, "/v1/responses", body, expected=(400, *NOT_FOUND))
        return
    if kind in ("session", "end"):
        body = {"messages": [{"role": "user", "content": own}], "session_id": session}
        body |= {"session_done": True} if kind == "end" else {}
        await town.ask(person, "/v1/chat/completions", body)
        return
    method, path, body = {
        "feedback": ("POST", "/v1/feedback", {"completion_id": answer, "score": -1, "text": own}),
        "reward": ("POST", "/v1/feedback", {"session_id": session, "score": 1, "scope": "session"}),
        "turn": ("GET", f"/v1/turns/{answer}", {}),
        "trajectory": ("POST", "/v1/trajectories", {"session_ids": [session], "content": True}),
        "wish": ("DELETE", f"/v1/memory/{await a_wish_of(town, other)}", {}),
    }[kind]
    sent = {**body, **(person.named if kind in ("feedback", "reward") else {})} or None
    status, text = await town.send(method, path, person.headers, sent)
    # the bearer of a key reads the turns of the key's own name, for any user
    keys_own = Owner(person.owner.key)
    allowed = next((one.word for one in town.people if one.owner == keys_own), None)
    town.check("response", text, person, allowed if kind == "trajectory" else None)
    if status == 200 and kind in ("feedback", "turn", "wish"):
        town.findings.add("response", f"{person.owner}: {kind} of {other.owner} was accepted")
    if status >= 500:
        town.failed(kind, status, text)


async def a_wish_of(town: Town, person: Person) -> int:
    """Returns the id of a preference of this person's key; 0: there is none."""
    if not person.owner.key:
        return 0
    status, text = await town.send(
        "GET", "/v1/memory", {"Authorization": f"Bearer {key_of(person.owner.key)}"}
    )
    wishes = json.loads(text).get("data", []) if status == 200 else []
    return int(town.chance.choice(wishes)["id"]) if wishes else 0


async def look(town: Town, person: Person) -> None:
    """Reads the data of a person over the API and on the page. Pages of a session also show the turns that others
    have sent with its id."""
    admin = {"Authorization": f"Bearer {ADMIN}"}
    answer = town.chance.choice(person.answers) if person.answers else "none"
    path, headers = town.chance.choice([
        ("/v1/memory", {"Authorization": f"Bearer {key_of(person.owner.key)}"}),
        ("/v1/models", person.headers), ("/status", person.headers), ("/metrics", {}),
        (f"/page/turn?id={answer}", admin), (f"/admin/turns/{answer}", admin),
        (f"/admin/turns/{answer}/tokens", admin),
    ])  # fmt: skip
    status, text = await town.send("GET", path, headers)
    place = "page" if headers is admin else "response"
    if path == "/v1/memory" and person.owner.user:  # it has the preferences of the key's own name
        return
    town.check(place, text, person)
    if path in ("/v1/models", "/status"):
        adapters = {one.owner.adapter for one in town.people} - {None, person.owner.adapter}
        if any(f'"{SERVED}:{name}"' in text or f'"{name}":' in text for name in adapters):
            town.findings.add("response", f"{path} shows {person.owner} another's adapter")
    if status >= 500:
        town.failed(path.partition("?")[0], status, text)


async def delete_wish(town: Town, person: Person) -> None:
    """Deletes one of the own preferences."""
    if not person.owner.user and (wish := await a_wish_of(town, person)):
        await town.send("DELETE", f"/v1/memory/{wish}", person.headers)


ACTS: dict[str, tuple[Act, int]] = {
    "talk": (talk, 70), "aside": (talk_aside, 6), "feedback": (judge, 6), "end or deletion": (end, 3),
    "use of another's ids": (attack, 8), "look": (look, 5), "disconnect": (disconnect, 1),
    "deletion of a preference": (delete_wish, 1),
}  # fmt: skip
"""What people do, with weights."""
