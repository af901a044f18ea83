"""python -m openclaw.chat against a real gateway."""

from __future__ import annotations

import io

import pytest

from openclaw.chat.__main__ import main
from openclaw.chat.client import ChatError, Server
from openclaw.chat.conversation import Chat, converse
from openclaw.chat.turn_status import AllTurns, describe, is_over
from openclaw.forget.__main__ import main as forget
from openclaw.types import SampleDraft

KEY = "secret-key"


@pytest.fixture
def chat(gateway):
    server = Server(gateway.url + "/v1", KEY)
    shown: list[str] = []
    made = Chat(server, server.models()[0]["id"], shown.append, lambda piece: shown.append(piece))
    made.shown = shown
    yield made
    server.close()


def test_an_answer_is_printed_as_it_streams_and_its_turn_is_followed(chat, gateway):
    gateway.says("the answer is 42.")
    converse(chat, ["what is it?"])
    assert "".join(chat.shown).strip() == "the answer is 42." and len(chat.shown) > 2
    assert chat.watch.open == 1
    (news,) = chat.watch.news()
    assert news == "answer 1: waits for your next message"
    assert chat.watch.news() == []


def test_the_second_message_is_the_next_state_of_the_first_turn(chat, gateway):
    gateway.says("hello there")
    converse(chat, ["hi", "and you?"])
    turns = gateway.wait_for(lambda: gateway.http.get("/admin/turns").json()["data"])
    assert [turn["turn_index"] for turn in turns] == [1, 0]
    assert gateway.wait_for(lambda: gateway.store.status.counts()["turns"].get("answered") == 1)


def test_good_bad_and_hint_commands_are_stored(chat, gateway):
    gateway.says("hello there")
    converse(chat, ["/good", "hi", "/bad", "/hint be formal"])
    assert "there is no answer to rate yet" in chat.shown
    assert gateway.wait_for(lambda: gateway.store.status.counts()["turns"].get("answered") == 1)
    assert any("your rating replaces the judge's score" in line for line in chat.shown)


def test_private_messages_are_not_stored(chat, gateway):
    gateway.says("hello there")
    converse(chat, ["/train off", "a secret"])
    assert gateway.http.get("/admin/turns").json()["data"] == [] and chat.watch.open == 0


def test_private_messages_are_not_stored_later_with_the_history(chat, gateway):
    gateway.says("hello there")
    converse(chat, ["in public", "/train off", "my PIN is 4711", "/good", "/train on", "and in public again"])
    turns = gateway.wait_for(lambda: gateway.http.get("/admin/turns").json()["data"])
    assert len({turn["session_id"] for turn in turns}) == 2 and len(turns) == 2
    kept = b"".join(path.read_bytes() for path in gateway.buffer.rglob("*") if path.is_file())
    assert b"and in public again" in kept and b"4711" not in kept
    assert any("ratings are not stored" in line for line in chat.shown)


def test_the_new_command_ends_the_session_and_starts_another(chat, gateway):
    gateway.says("hello there")
    first = chat.session
    converse(chat, ["hi", "/new"])
    assert chat.session != first and chat.messages == []
    assert gateway.store.sessions.get(first).ended_at is not None


def test_unknown_commands_and_rejections_do_not_end_the_chat(chat, gateway):
    gateway.says("hello there")
    gateway.engine.refuse = "too long"
    converse(chat, ["/sing", "hi"])
    gateway.engine.refuse = None
    converse(chat, ["hi again", "/status", "/quit", "never said"])
    text = "\n".join(chat.shown)
    assert "unknown command /sing" in text and "error:" in text and "version" in text
    assert [message["content"] for message in chat.messages if message["role"] == "user"] == ["hi again"]


def test_piped_input_is_answered_line_by_line_with_turn_reports(gateway, monkeypatch, capsys):
    gateway.says("hello there")
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert main(["--url", gateway.url, "--api-key", KEY, "--wait", "0.2"]) == 0
    out = capsys.readouterr().out
    assert "hello there" in out and "answer 1: waits for your next message" in out


def test_the_named_person_owns_the_turns_and_can_be_forgotten(gateway, monkeypatch, capsys):
    gateway.says("hello there")
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n/bad\n/new\nhi again\n"))
    chat = ["--url", gateway.url, "--api-key", KEY, "--wait", "0"]
    assert main([*chat, "--person", "ada"]) == 0
    turns = gateway.http.get("/admin/turns").json()["data"]
    assert {turn["person"] for turn in turns} == {"ada"} and len(turns) == 2
    out = capsys.readouterr().out
    assert "your rating replaces the judge's score" in out and "error" not in out
    assert gateway.store.sessions.get(turns[-1]["session_id"]).ended_at is not None
    assert forget(["ada", "--url", gateway.url]) == 0
    assert gateway.http.get("/admin/turns").json()["data"] == []


def test_the_turns_of_all_clients_are_reported_as_they_change(chat, gateway, capsys, monkeypatch):
    gateway.says("hello there")
    watched = AllTurns(lambda: chat.server.newest_turns(None))
    assert watched.news() == []
    said = {"messages": [{"role": "user", "content": "from another client"}]}
    gateway.http.post("/v1/chat/completions", json=said, headers={"X-Session-Id": "elsewhere"})
    (output,) = watched.news()
    assert output.startswith("main turn 0 of session elsewhere") and "waits for your next message" in output
    assert watched.news() == []
    chat.server.end_session("elsewhere")
    assert "not trained" in watched.news()[0]
    assert AllTurns(lambda: chat.server.newest_turns(None)).news() == []  # earlier events are not reported

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("openclaw.chat.__main__.time.sleep", stop)
    assert main(["--url", gateway.url, "--api-key", KEY, "--watch"]) == 0
    assert "watching turns at" in capsys.readouterr().out


def test_no_text_of_another_person_controls_the_terminal(start_gateway, monkeypatch, capsys):
    clear, forged = "\x1b[2J\x9b2J\x07", "\nmain turn 9 of session s, trained: v9 has learned from it"
    gateway = start_gateway(memory=True)
    gateway.says(f"hello {clear}there")
    asked = {"messages": [{"role": "user", "content": "hi"}], "user": "eve", "max_tokens": 20}
    turn = gateway.turn(gateway.http.post("/v1/chat/completions", json=asked).json()["id"])
    assert clear in turn.response_message["content"]
    rated = {"completion_id": turn.completion_id, "user": "eve", "score": -1, "text": f"brief{clear}{forged}"}
    assert gateway.http.post("/v1/feedback", json=rated).status_code == 200
    judgements = gateway.store.feedback.judgements_of(turn.id)
    gateway.store.judgements.finish(turn.id, judgements, SampleDraft(turn_id=turn.id, reward=-1.0))

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("openclaw.chat.__main__.time.sleep", stop)
    assert main(["--url", gateway.url, "--api-key", KEY, "--watch"]) == 0
    assert forget(["eve", "--wishes", "--url", gateway.url]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert main(["--url", gateway.url, "--api-key", KEY, "--wait", "0"]) == 0
    out = capsys.readouterr().out
    assert out.count("brief⟨001B⟩[2J⟨009B⟩2J⟨0007⟩ main turn 9") == 3 and "hello ⟨001B⟩[2J" in out
    assert not {"\x1b", "\x9b", "\x07"} & set(out)


def test_watching_continues_when_the_server_is_back(gateway, capsys, monkeypatch):
    looks = iter([[], ChatError("no answer"), ChatError("no answer"), [], KeyboardInterrupt()])

    def news(_):
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("openclaw.chat.__main__.AllTurns.news", news)
    monkeypatch.setattr("openclaw.chat.__main__.time.sleep", lambda _: None)
    assert main(["--url", gateway.url, "--api-key", KEY, "--watch"]) == 0
    output = capsys.readouterr().out
    assert output.count("retrying until it is reachable") == 1 and output.count("is reachable again") == 1


def test_a_missing_server_and_a_wrong_key_print_one_line_each(keyed, capsys):
    assert main(["--url", "http://127.0.0.1:9/v1"]) == 1
    assert "check that the server is running" in capsys.readouterr().err
    assert main(["--url", keyed.url, "--api-key", "wrong"]) == 1
    assert "pass the client key" in capsys.readouterr().err


def test_each_stage_of_a_turn_has_its_message():
    status = {
        "turn_type": "main", "turn_index": 2, "session_id": "s", "weight_versions": [3, 4], "score": 1.0,
        "judge": "rules", "hints": ["be short"], "sample_state": "trained", "trained_version": 5,
        "drop_reason": None, "state": "judged", "state_reason": None,
    }  # fmt: skip
    output = describe(status)
    assert output.startswith(
        'main turn 2 of session s, written by v3+v4, judged +1 by rules, hint: "be short"'
    )
    assert output.endswith("trained: v5 has learned from it") and is_over(status)
    why = describe({**status, "reason": "praise: thanks"})
    assert 'judged +1 by rules (praise: thanks), hint: "be short"' in why
    lost = {**status, "sample_state": None, "state": "expired", "score": None, "hints": []}
    assert describe(lost).endswith("not trained (expired)") and is_over(lost)
    dropped = {**status, "sample_state": "dropped", "drop_reason": "neutral_score"}
    assert describe(dropped).endswith("not trained (neutral_score)")
    rejected = {**status, "sample_state": "quarantined", "drop_reason": "KL is 9"}
    assert describe(rejected).endswith("in quarantine: its update was rejected or undone (KL is 9)")
    assert not is_over(rejected), "it can be released"


def test_a_repeated_rating_of_a_judged_turn_is_not_called_too_late(chat, gateway):
    gateway.says("hello there")
    converse(chat, ["hi", "/good"])
    (turn,) = gateway.store.judgements.claim("judge", 1, 60)
    gateway.store.judgements.finish(turn.id, [], SampleDraft(turn_id=turn.id, reward=1.0))
    converse(chat, ["/good"])
    assert "the rating is unchanged" in chat.shown[-1]
    assert gateway.store.status.counts()["samples"] == {"ready": 1}


def test_an_unexpected_server_is_reported():
    with pytest.raises(ChatError, match="cannot reach"):
        Server("http://127.0.0.1:9", None).models()
    with pytest.raises(ChatError, match="is not a valid URL"):
        Server("http://[::1", None)
