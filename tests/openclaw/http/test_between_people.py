"""Access of one person to another's data: a table of routes, owners of the turn, and callers.

Each table has a row per owner and a column per caller. `+`: the caller can access the turn; `-`: the turn does not
exist for the caller; `x`: the request is rejected (401).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from openclaw.store import schema
from openclaw.types import Drop, Judgement, Vote
from tests.fakes.running_gateway import RunningGateway, StartGateway

KEYS = {"ada": "key-ada", "bob": "key-bob", "common": "key-common", "admin": "key-admin"}
ANSWER = "hello there"
WISH = "Please answer in one sentence."
ASKERS = (
    "ada", "ada:carol", "bob", "bob:ada", "bob:carol", "common", "common:ada", "common:carol", "none",
)  # fmt: skip
"""A key and, after the colon, the `user` in the request."""

MAY_USE = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            +      -      -     -        -       -        -           -        x
ada:carol      -      +      -     -        -       -        -           -        x
bob            -      -      +     +        -       -        -           -        x
bob:ada        -      -      +     +        -       -        -           -        x
common         -      -      -     -        -       +        +           +        x
common:ada     -      -      -     -        -       +        +           +        x
common:carol   -      -      -     -        -       -        -           +        x
old_ada        +      -      -     -        -       -        -           -        x
old_unnamed    +      +      +     +        +       +        +           +        x
"""
"""A `user` that equals another key's name is ignored: the turn belongs to the key's own name, or to no person. Turns
without a recorded key are assigned by the person alone."""
MAY_JUDGE = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            +      -      -     -        -       -        -           -        x
ada:carol      -      +      -     -        -       -        -           -        x
bob            -      -      +     -        -       -        -           -        x
bob:ada        -      -      +     -        -       -        -           -        x
common         -      -      -     -        -       +        -           +        x
common:ada     -      -      -     -        -       +        -           +        x
common:carol   -      -      -     -        -       -        -           +        x
old_ada        +      -      -     -        -       -        -           -        x
old_unnamed    +      +      +     -        +       +        -           +        x
"""
"""No key can give feedback in the name of another key's bearer."""
NO_ROUTE = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            -      -      -     -        -       -        -           -        x
ada:carol      -      -      -     -        -       -        -           -        x
bob            -      -      -     -        -       -        -           -        x
bob:ada        -      -      -     -        -       -        -           -        x
common         -      -      -     -        -       -        -           -        x
common:ada     -      -      -     -        -       -        -           -        x
common:carol   -      -      -     -        -       -        -           -        x
old_ada        -      -      -     -        -       -        -           -        x
old_unnamed    -      -      -     -        -       -        -           -        x
"""
"""A raw text prompt continues no turn."""
TRAJECTORIES = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            +      +      -     -        -       -        -           -        x
ada:carol      -      -      -     -        -       -        -           -        x
bob            -      -      +     +        +       -        -           -        x
bob:ada        -      -      +     +        +       -        -           -        x
common         -      -      -     -        -       -        -           -        x
common:ada     -      -      -     -        -       -        -           -        x
common:carol   -      -      -     -        -       -        -           -        x
old_ada        +      +      -     -        -       -        -           -        x
old_unnamed    -      -      -     -        -       -        -           -        x
"""
"""The bearer of a named key reads the turns of that name, for any `user` in the request."""
IN_PROMPT = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            +      -      -     -        -       -        -           -        x
ada:carol      -      +      -     -        -       -        -           -        x
bob            -      -      +     -        -       -        -           -        x
bob:ada        -      -      -     -        -       -        -           -        x
common         -      -      -     -        -       -        -           -        x
common:ada     -      -      -     -        -       -        -           -        x
common:carol   -      -      -     -        -       -        -           +        x
old_ada        +      -      -     -        -       -        -           -        x
old_unnamed    -      -      -     -        -       -        -           -        x
"""
"""A preference expressed after such a turn is in the caller's next prompt. A caller that names another key's bearer
has no memory."""
OWN_MEMORY = """
              ada ada:carol bob bob:ada bob:carol common common:ada common:carol none
ada            +      +      -     -        -       -        -           -        x
ada:carol      -      -      -     -        -       -        -           -        x
bob            -      -      +     +        +       -        -           -        x
bob:ada        -      -      -     -        -       -        -           -        x
common         -      -      -     -        -       -        -           -        x
common:ada     -      -      -     -        -       -        -           -        x
common:carol   -      -      -     -        -       -        -           -        x
old_ada        +      +      -     -        -       -        -           -        x
old_unnamed    -      -      -     -        -       -        -           -        x
"""
"""GET and DELETE /v1/memory access the preferences of the key's own name; other keys get 403."""


def cells(table: str) -> Iterator[tuple[str, str, str]]:
    """Yields (owner, caller, expected result)."""
    head, *rows = table.strip().splitlines()
    assert tuple(head.split()) == ASKERS
    for row in rows:
        owner, *marks = row.split()
        for asker, mark in zip(ASKERS, marks, strict=True):
            yield owner, asker, mark


@dataclass
class Town:
    """A gateway with keys, and requests of several people."""

    gateway: RunningGateway
    http: httpx.Client
    numbers: Iterator[int] = field(default_factory=count)

    def send(self, asker: str, method: str, path: str, **rest: Any) -> httpx.Response:
        key = asker.partition(":")[0]
        headers = {"Authorization": f"Bearer {KEYS[key]}"} if key in KEYS else {}
        return self.http.request(method, path, headers={**headers, **rest.pop("headers", {})}, **rest)

    def post(self, asker: str, path: str, **body: Any) -> httpx.Response:
        """Sends a request with the person that the caller names, if the API supports it."""
        user = asker.partition(":")[2]
        named = {"metadata": {"user_id": user}} if path == "/v1/messages" else {"user": user}
        return self.send(asker, "POST", path, json={**body, **(named if user else {})})

    def turn(self, owner: str) -> Any:
        """Creates a turn of the owner in a new session, with unique words."""
        number = next(self.numbers)
        maker = {"old_ada": "ada", "old_unnamed": "common"}.get(owner, owner)
        said = [{"role": "user", "content": f"question {number}"}]
        answer = self.post(maker, "/v1/chat/completions", messages=said, session_id=f"s{number}")
        assert answer.status_code == 200, answer.text
        turn = self.gateway.turn(answer.json()["id"])
        if owner.startswith("old"):
            self.forget_key(turn.id)
        return turn

    def forget_key(self, turn_id: str) -> None:
        """Removes the recorded key of a turn, and of the preferences remembered after it."""
        with self.gateway.store.database.transaction() as connection:
            mine = update(schema.turn).where(schema.turn.c.id == turn_id)
            connection.execute(mine.values(key_name=None))
            wish = update(schema.memory).where(schema.memory.c.turn_id == turn_id)
            connection.execute(wish.values(key_name=None))

    def continued(self, asker: str, turn: Any, path: str, **body: Any) -> str:
        """Returns the result of a request that has the messages of a turn as its history: + if it continues the
        turn."""
        history = [*turn.messages, turn.response_message, {"role": "user", "content": "and then?"}]
        shape: dict[str, Any] = {"messages": history}
        if path == "/v1/responses":
            shape = {"input": history}
        elif path == "/v1/completions":
            shape = {"prompt": "\n".join(message["content"] for message in history)}
        elif path == "/v1/messages":
            shape["max_tokens"] = 9
        answer = self.post(asker, path, **shape, **body)
        if answer.status_code != 200:
            return self.refused(answer)
        made = self.gateway.turn(answer.json()["id"])
        return "+" if made.parent_id == turn.id else "-"

    def refused(self, answer: httpx.Response) -> str:
        return "x" if answer.status_code == 401 else "-" if answer.status_code in (403, 404) else answer.text

    def state(self, turn: Any) -> str:
        return str(self.gateway.turn(turn.completion_id).state)


@contextmanager
def town_of(gateway: RunningGateway) -> Iterator[Town]:
    gateway.says(ANSWER)
    with httpx.Client(base_url=gateway.url, timeout=20) as http:
        yield Town(gateway, http)


@pytest.fixture
def town(start_gateway: StartGateway) -> Iterator[Town]:
    keys = ",".join(f"{name}={KEYS[name]}" for name in ("ada", "bob"))
    gateway = start_gateway(api_keys=keys, api_key=KEYS["common"], admin_key=KEYS["admin"], memory=True)
    with town_of(gateway) as made:
        yield made


def continue_in_session(path: str) -> Callable[[Town, str, Any], str]:
    return lambda town, asker, turn: town.continued(asker, turn, path, session_id=turn.session_id)


def continue_by_words(path: str) -> Callable[[Town, str, Any], str]:
    return lambda town, asker, turn: town.continued(asker, turn, path)


def continue_in_path(town: Town, asker: str, turn: Any) -> str:
    return town.continued(asker, turn, f"/sessions/{turn.session_id}/v1/chat/completions")


def join_a_group(town: Town, asker: str, turn: Any) -> str:
    """Reads the turns of a group that contains the turn and one of the caller's."""
    group = f"group of {turn.session_id}"
    with town.gateway.store.database.transaction() as connection:
        mine = update(schema.turn).where(schema.turn.c.id == turn.id)
        connection.execute(mine.values(group_id=group))
    town.post(asker, CHAT, messages=[{"role": "user", "content": "mine"}], group=group)
    answer = town.send(asker, "POST", "/v1/trajectories", json={"group": group, "content": True})
    if answer.status_code != 200:
        return town.refused(answer)
    found = [one["completion_id"] for session in answer.json()["data"] for one in session["turns"]]
    return "+" if turn.completion_id in found else "-"


def continue_aside(town: Town, asker: str, turn: Any) -> str:
    return town.continued(asker, turn, "/v1/chat/completions", session_id=turn.session_id, turn_type="side")


def continue_a_summary(town: Town, asker: str, turn: Any) -> str:
    """Sends another history before the same answer, in the same session."""
    short = [
        {"role": "user", "content": "a summary"},
        turn.response_message,
        {"role": "user", "content": "on"},
    ]
    answer = town.post(asker, "/v1/chat/completions", messages=short, session_id=turn.session_id)
    if answer.status_code != 200:
        return town.refused(answer)
    return "+" if town.gateway.turn(answer.json()["id"]).parent_id == turn.id else "-"


def continue_a_response(town: Town, asker: str, turn: Any) -> str:
    answer = town.post(asker, "/v1/responses", input="and?", previous_response_id=turn.completion_id)
    if answer.status_code != 200:
        return town.refused(answer)
    made = town.gateway.turn(answer.json()["id"])
    return "+" if made.parent_id == turn.id and made.messages[0] == turn.messages[0] else "-"


def read_status(town: Town, asker: str, turn: Any) -> str:
    user = asker.partition(":")[2]
    answer = town.send(asker, "GET", f"/v1/turns/{turn.completion_id}", params={"user": user} if user else {})
    return "+" if answer.status_code == 200 else town.refused(answer)


def read_trajectory(town: Town, asker: str, turn: Any) -> str:
    answer = town.send(
        asker, "POST", "/v1/trajectories", json={"session_ids": [turn.session_id], "content": True}
    )
    return (
        ("+" if answer.json()["data"][0]["turns"] else "-")
        if answer.status_code == 200
        else town.refused(answer)
    )


def judged(**of_turn: str) -> Callable[[Town, str, Any], str]:
    def judge(town: Town, asker: str, turn: Any) -> str:
        meant = {field: getattr(turn, field) for field in of_turn}
        extra = {"scope": "session"} if of_turn.get("session_id") == "whole" else {"text": "by the asker"}
        answer = town.post(asker, "/v1/feedback", **meant, **extra, score=-1)
        reached = bool(town.gateway.store.feedback.judgements_of(turn.id))
        assert reached == (answer.status_code == 200), (asker, answer.text)
        return "+" if reached else town.refused(answer)

    return judge


def ended(path: str, with_words: bool = False, by_header: bool = False) -> Callable[[Town, str, Any], str]:
    """Returns a request that ends the turn's session, with new messages if the API requires some."""
    shapes: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "bye"}]} if with_words else {},
        "/v1/completions": {"prompt": "bye"},
        "/v1/responses": {"input": "bye"},
        "/v1/messages": {"messages": [{"role": "user", "content": "bye"}], "max_tokens": 9},
    }

    def end(town: Town, asker: str, turn: Any) -> str:
        body = {**shapes[path], "session_id": turn.session_id, "turn_type": "side"}
        if by_header:
            user = asker.partition(":")[2]
            body |= {"user": user} if user else {}
            answer = town.send(asker, "POST", path, json=body, headers={"X-Session-Done": "1"})
        else:
            answer = town.post(asker, path, **body, session_done=True)
        if answer.status_code != 200:
            return town.refused(answer)
        return "+" if town.state(turn) == "expired" else "-"

    return end


CHAT, ALL = "/v1/chat/completions", ("/v1/chat/completions", "/v1/responses", "/v1/messages")
ROUTES: dict[str, tuple[str, Callable[[Town, str, Any], str]]] = {
    **{f"continue with a session id, {path}": (MAY_USE, continue_in_session(path)) for path in ALL},
    **{f"continue by equal words, {path}": (MAY_USE, continue_by_words(path)) for path in ALL},
    "continue raw text with a session id": (NO_ROUTE, continue_in_session("/v1/completions")),
    "continue raw text": (NO_ROUTE, continue_by_words("/v1/completions")),
    "continue with a session id in the path": (MAY_USE, continue_in_path),
    "continue as a side turn": (MAY_USE, continue_aside),
    "continue a summary": (MAY_USE, continue_a_summary),
    "continue by previous_response_id": (MAY_USE, continue_a_response),
    "GET /v1/turns/ID": (MAY_USE, read_status),
    "POST /v1/trajectories": (TRAJECTORIES, read_trajectory),
    "POST /v1/trajectories of a group": (TRAJECTORIES, join_a_group),
    "feedback on a completion": (MAY_JUDGE, judged(completion_id="")),
    "feedback on a session's last answer": (MAY_JUDGE, judged(session_id="")),
    "feedback on both": (MAY_JUDGE, judged(completion_id="", session_id="")),
    "reward of a session": (MAY_JUDGE, judged(session_id="whole")),
    "end of session": (MAY_USE, ended(CHAT)),
    "end of session with words": (MAY_USE, ended(CHAT, with_words=True)),
    "end of session by header": (MAY_USE, ended(CHAT, by_header=True)),
    "end of session, /v1/completions": (MAY_USE, ended("/v1/completions")),
    "end of session, /v1/responses": (MAY_USE, ended("/v1/responses")),
    "end of session, /v1/messages": (MAY_USE, ended("/v1/messages")),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_turn_belongs_to_the_key_that_created_it(town: Town, route: str) -> None:
    table, attempt = ROUTES[route]
    wrong = []
    untouched = []
    for owner, asker, expected in cells(table):
        turn = town.turn(owner)
        found = attempt(town, asker, turn)
        if found != expected:
            wrong.append(f"turn of {owner}, asked by {asker}: {found} instead of {expected}")
        if expected != "+":
            untouched.append((f"turn of {owner}, asked by {asker}", turn))
    assert wrong == []
    for about, turn in untouched:
        now = town.gateway.turn(turn.completion_id)
        assert (now.state, now.next_state) == ("captured", None), about
        assert town.gateway.store.feedback.judgements_of(turn.id) == [], about


def complain(town: Town, turn: Any, wish: str = WISH) -> None:
    """Stores the judgement for a complaint in the next message."""
    store = town.gateway.store
    store.turns.answer(turn.id, [{"role": "user", "content": wish}])
    hint = Judgement(kind="hint", score=1.0, votes=[Vote(score=1, hint=wish)], judge="test", hints=[wish])
    assert store.judgements.finish(turn.id, [hint], Drop("test"))


def in_prompt(town: Town, asker: str) -> str:
    answer = town.post(asker, CHAT, messages=[{"role": "user", "content": f"new {next(town.numbers)}"}])
    if answer.status_code != 200:
        return town.refused(answer)
    return "+" if WISH in (town.gateway.turn(answer.json()["id"]).memory or []) else "-"


def in_own_memory(town: Town, asker: str) -> str:
    listed = town.send(asker, "GET", "/v1/memory")
    wish_id = town.gateway.store.memory.wishes()[0].id if town.gateway.store.memory.wishes() else 0
    deleted = town.send(asker, "DELETE", f"/v1/memory/{wish_id}")
    if listed.status_code != 200:
        assert town.refused(deleted) == town.refused(listed)
        return town.refused(listed)
    found = WISH in [one["text"] for one in listed.json()["data"]]
    assert (deleted.status_code == 200) == found
    return "+" if found else "-"


@pytest.mark.parametrize(("table", "attempt"), [(IN_PROMPT, in_prompt), (OWN_MEMORY, in_own_memory)])
def test_a_preference_applies_only_to_its_key_and_person(
    town: Town, table: str, attempt: Callable[[Town, str], str]
) -> None:
    wrong = []
    for owner, asker, expected in cells(table):
        turn = town.turn(owner)
        complain(town, turn)
        if owner.startswith("old"):
            town.forget_key(turn.id)
        found = attempt(town, asker)
        if found != expected:
            wrong.append(f"wish of {owner}, asked by {asker}: {found} instead of {expected}")
        town.gateway.store.deletion.delete_session(turn.session_id)
    assert wrong == []


def test_deleting_a_preference_keeps_the_equal_one_of_another_key(town: Town) -> None:
    complain(town, town.turn("ada:carol"))
    complain(town, town.turn("bob:carol"))
    assert len(town.gateway.store.memory.wishes("carol")) == 2
    assert (in_prompt(town, "ada:carol"), in_prompt(town, "bob:carol"), in_prompt(town, "common:carol")) == (
        "+", "+", "-",
    )  # fmt: skip
    complain(town, town.turn("ada:carol"))
    assert len(town.gateway.store.memory.wishes("carol")) == 2


PRIVATE = (
    ("GET", "/"), ("GET", "/page/sessions"), ("GET", "/page/session?id=s"), ("GET", "/page/privacy"),
    ("POST", "/page/privacy/delete"), ("POST", "/page/privacy/forget"), ("POST", "/page/turn/verdict"),
    ("GET", "/admin/now"), ("GET", "/admin/sessions"), ("GET", "/admin/sessions/s"), ("GET", "/admin/turns"),
    ("GET", "/admin/turns/{turn}"), ("GET", "/admin/turns/{turn}/tokens"), ("POST", "/admin/turns/{turn}/verdict"),
    ("POST", "/admin/turns/{turn}/again"), ("GET", "/admin/privacy"), ("GET", "/admin/export"),
    ("GET", "/admin/memory"), ("DELETE", "/admin/memory/1"), ("GET", "/admin/progress"),
    ("GET", "/admin/progress/recorded"), ("POST", "/admin/progress"), ("POST", "/admin/progress/first"),
    ("POST", "/admin/trajectories"), ("POST", "/admin/purge"), ("DELETE", "/admin/sessions/s"),
    ("DELETE", "/admin/sessions/s/content"), ("DELETE", "/admin/persons/ada/content"), ("GET", "/admin/learning"),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PRIVATE)
def test_no_client_key_opens_administrator_routes(town: Town, method: str, path: str) -> None:
    turn = town.turn("ada")
    for asker in ASKERS:
        answer = town.send(asker, method, path.format(turn=turn.completion_id), json=None)
        to_login = answer.status_code == 303 and answer.headers["location"].startswith("/page/login")
        assert answer.status_code == 401 or to_login, (asker, answer.status_code)
    assert town.state(turn) == "captured"


def test_a_side_turn_in_anothers_session_changes_no_ownership(town: Town) -> None:
    turn = town.turn("ada")
    for asker in ("bob", "common", "bob:carol"):
        words = {"messages": [{"role": "user", "content": "mine"}], "session_id": turn.session_id}
        assert town.post(asker, CHAT, **words, turn_type="side").status_code == 200
        answer = town.post(asker, "/v1/feedback", session_id=turn.session_id, score=-1, text="by another")
        assert answer.status_code == 404
        assert (
            town.post(
                asker, "/v1/feedback", session_id=turn.session_id, scope="session", score=-1
            ).status_code
            == 404
        )
    session = town.gateway.store.sessions.get(turn.session_id)
    assert session is not None and (session.person, session.key_name) == ("ada", "ada")
    assert town.post("ada", "/v1/feedback", session_id=turn.session_id, score=1).status_code == 200
    (score,) = town.gateway.store.feedback.judgements_of(turn.id)
    assert score.score == 1.0


def test_a_main_turn_in_anothers_session_hides_none_of_their_turns(town: Town) -> None:
    turn = town.turn("ada")
    words = [{"role": "user", "content": "mine"}]
    answer = town.post("bob", CHAT, messages=words, session_id=turn.session_id).json()
    assert town.post("ada", "/v1/feedback", session_id=turn.session_id, score=1).json()["completion_id"] == (
        turn.completion_id
    )
    rewarded = town.post(
        "bob", "/v1/feedback", session_id=turn.session_id, scope="session", score=1, discount=0.5
    )
    assert rewarded.json()["turns"] == [{"completion_id": answer["id"], "score": 1.0, "status": "judging"}]


def test_deleting_a_person_deletes_no_turn_of_another(town: Town) -> None:
    of_ada, nameless, forged = town.turn("ada"), town.turn("common"), town.turn("bob:ada")
    words = [{"role": "user", "content": "mine"}]
    for session in (of_ada.session_id, nameless.session_id):
        assert town.post("bob", CHAT, messages=words, session_id=session).status_code == 200
    gone = town.send("admin", "DELETE", "/admin/persons/bob/content")
    assert gone.json()["deleted"]["turns"] == 3
    turns = [town.gateway.turn(turn.completion_id) for turn in (of_ada, nameless, forged)]
    assert [turn is None for turn in turns] == [False, False, True]
    assert town.send("admin", "DELETE", "/admin/persons/bob/content").status_code == 404
    town.post("bob", CHAT, messages=words, session_id=of_ada.session_id)
    assert town.send("admin", "DELETE", "/admin/persons/ada/content").json()["deleted"]["turns"] == 1
    session = town.gateway.store.sessions.get(of_ada.session_id)
    assert session is not None and (session.turns, session.person) == (1, "bob")


def test_unnamed_turns_in_a_persons_session_are_deleted_with_the_person(town: Town) -> None:
    first = town.turn("common:carol")
    words = [{"role": "user", "content": "and a title?"}]
    town.post("common", CHAT, messages=words, session_id=first.session_id, turn_type="side")
    export = town.send("admin", "GET", "/admin/export", params={"person": "carol"})
    assert export.text.count('"kind":"turn"') == 2
    assert town.send("admin", "DELETE", "/admin/persons/carol/content").json()["deleted"] | {} == {
        "sessions": 1, "turns": 2, "judgements": 0, "feedback": 0, "samples": 0, "trainings": 0,
    }  # fmt: skip


def test_an_export_of_a_person_has_no_turn_of_another(town: Town) -> None:
    turn = town.turn("ada")
    town.post("bob", CHAT, messages=[{"role": "user", "content": "bobs secret"}], session_id=turn.session_id)
    export = town.send("admin", "GET", "/admin/export", params={"person": "ada"}).text
    assert export.count('"kind":"turn"') == 1 and "bobs secret" not in export


NO_KEYS = """
          unnamed  ada  bob
unnamed      +      +    +
ada         +      +    -
"""
"""Without keys, every client accesses everything, and `user` only labels data."""


@pytest.mark.parametrize("route", [name for name in ROUTES if ROUTES[name][0] in (MAY_USE, MAY_JUDGE)])
def test_without_keys_the_user_field_only_labels_data(start_gateway: StartGateway, route: str) -> None:
    _, attempt = ROUTES[route]
    head, *rows = NO_KEYS.strip().splitlines()
    wrong = []
    with town_of(start_gateway(api_key=None)) as town:
        for row in rows:
            owner, *marks = row.split()
            for asker, expected in zip(head.split(), marks, strict=True):
                turn = town.turn(f"none:{owner}".removesuffix(":unnamed"))
                found = attempt(town, f"none:{asker}".removesuffix(":unnamed"), turn)
                if found != expected:
                    wrong.append(f"turn of {owner}, asked by {asker}: {found} instead of {expected}")
    assert wrong == []


def test_removing_keys_does_not_open_a_named_keys_turns(start_gateway: StartGateway) -> None:
    with town_of(start_gateway(api_keys="ada=key-ada", api_key=None)) as keyed:
        turn = keyed.turn("ada")
        keyed.gateway.stop()
    with town_of(start_gateway(api_key=None)) as bare:
        assert bare.continued("none", turn, CHAT) == "-"
        assert bare.continued("none:ada", turn, CHAT, session_id=turn.session_id) == "-"
        assert read_status(bare, "none", turn) == "-"
