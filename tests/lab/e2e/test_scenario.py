"""The checks of the end-to-end test detect the faults that they are for."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pytest

from claw_lab.e2e import checks
from claw_lab.e2e.relay import Relay
from claw_lab.e2e.scenario import Conversation, mismatches
from claw_lab.e2e.scripted_engine import answer_to
from claw_lab.e2e.serving import EngineCall, Serving
from openclaw.types import TurnState


def _turn(answer, next_state, **more):
    return SimpleNamespace(
        response_message=answer, next_state=next_state, turn_type="main", session_id="s1",
        version_spans=[(1, 0, 2), (2, 2, 3)], **more,
    )  # fmt: skip


def _talk(session_id="s1"):
    talk = Conversation("a", session_id)
    talk.add_exchange("hello", "You said: hello")
    talk.add_exchange("RUN echo one", "The tool answered: one")
    talk.add_exchange("SLOW", "SLOW slow slow")
    return talk


def _stored():
    call = {"tool_calls": [{"function": {"name": "exec"}}]}
    return [
        _turn({"content": "You said: hello"}, [{"role": "user", "content": "RUN echo one"}]),
        _turn(call, [{"role": "tool", "content": "one"}]),
        _turn(
            {"content": "The tool answered: one"},
            [{"role": "user", "content": [{"type": "text", "text": "SLOW"}]}],
        ),
        _turn({"content": "SLOW slow slow"}, None, state=TurnState.CAPTURED),
    ]


def test_correct_records_have_no_mismatch():
    assert mismatches(_talk(), _stored()) == []
    assert checks.conversation_problems([_talk()], _stored()) == []


def test_a_lost_turn_a_wrong_next_state_and_leaked_context_are_detected():
    assert "3 main turns are stored, 4 calls" in mismatches(_talk(), _stored()[:3])[0]
    stored = _stored()
    stored[0].next_state = None
    assert "next state None" in mismatches(_talk(), stored)[0]
    stored = _stored()
    stored[0].next_state = [{"role": "user", "content": "[Sat 2026-11-21 02:27 UTC] RUN echo one"}]
    assert "[Sat 2026" in mismatches(_talk(), stored)[0]
    stored = _stored()
    stored[1].next_state = [{"role": "tool", "content": "one <<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"}]
    assert "INTERNAL_CONTEXT" in mismatches(_talk(), stored)[0]
    stored = _stored()
    stored[3].next_state = [{"role": "user", "content": "of somebody else"}]
    assert "of somebody else" in mismatches(_talk(), stored)[0]


def test_a_wrong_session_a_wrong_reply_and_a_missing_end_are_detected():
    stored = _stored()
    stored[1].session_id = "s2"
    found = checks.conversation_problems([_talk()], stored)
    assert any("unknown session s2" in line for line in found) and any(
        "3 main turns" in line for line in found
    )
    talk = _talk()
    talk.add_exchange("Thanks.", "the answer of somebody else")
    assert "somebody else" in talk.wrong_replies[0]
    ended = _talk()
    ended.ends = True
    assert "its end was not told" in mismatches(ended, _stored())[0]


def test_a_reset_session_becomes_two_ordered_conversations():
    before, after = _talk(), Conversation("after", "s1")
    after.add_exchange("new", "You said: new")
    stored = [*_stored(), _turn({"content": "You said: new"}, None)]
    assert checks.conversation_problems([before, after], stored) == []
    stored[-1].response_message = {"content": "You said: Thanks."}
    assert len(checks.conversation_problems([before, after], stored)) == 1


def test_a_missing_id_or_version_of_a_sampled_answer_is_detected():
    call = EngineCall("chatcmpl-1", [5, 6, 7], [(1, 0, 2), (2, 2, 3)], 0.0, 1.0)
    turn = SimpleNamespace(
        completion_id="chatcmpl-1", completion_ids=[5, 6, 7], completion_log_probs=[-0.5] * 3,
        version_spans=[(1, 0, 2), (2, 2, 3)],
    )  # fmt: skip
    assert checks.storage_problems([turn], [call]) == []
    assert "not stored" in checks.storage_problems([], [call])[0]
    assert "never sampled" in checks.storage_problems([turn], [])[0]
    turn.version_spans = [(1, 0, 3)]
    assert "stored as written by" in checks.storage_problems([turn], [call])[0]
    turn.completion_ids = [5, 6, 8]
    assert "not the sampled ones" in checks.storage_problems([turn], [call])[0]


def test_missing_or_wrong_housekeeping_requests_are_detected():
    assert checks.side_problems({"compaction": 1, "heartbeat": 2, "cron": 1}) == []
    assert len(checks.side_problems({"compaction": 1, "other": 1})) == 3


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"id": "chatcmpl-%d"}' % self.server.answered
        self.server.answered += 1
        self.send_response(200 if self.server.answered < 3 else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        return


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    made.answered = 0
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_the_relay_separates_and_times_the_requests_of_one_connection(server):
    with Relay(server.server_address[1]) as relay, httpx.Client(trust_env=False) as client:
        for _ in range(3):
            client.post(f"http://127.0.0.1:{relay.port}/v1/chat/completions", json={"text": "x" * 200_000})
    assert [one.completion_id for one in relay.passages] == ["chatcmpl-0", "chatcmpl-1", "chatcmpl-2"]
    assert all(one.is_chat and one.began < one.ended for one in relay.passages)
    assert checks.refused(relay.passages) == ["a request of OpenClaw got HTTP 503"]
    calls = [EngineCall("chatcmpl-1", [], [], began=10.0, ended=10.002)]
    (added,) = checks.gateway_seconds(relay.passages, calls)
    passage = relay.passages[1]
    assert added == pytest.approx(passage.ended - passage.began - 0.002)


def test_the_relay_closes_the_connection_if_its_server_has_exited():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Relay(port) as relay, pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{relay.port}/", trust_env=False)


def test_the_script_answers_the_last_message_that_a_person_or_tool_wrote():
    def prompt(*messages):
        return (
            "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
            + "<|im_start|>assistant\n"
        )

    context = ("user", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nx\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
    stamped = ("user", "[Sat 2026-11-21 02:27 UTC] RUN echo hi")
    assert '"command": "echo hi"' in answer_to(prompt(stamped, context))
    result = ("user", "<tool_response>\nhi\n</tool_response>")
    assert answer_to(prompt(stamped, result, context)) == "The tool answered: hi"
    assert answer_to(prompt(("user", "hello"), context)) == "You said: hello"


def test_the_gateway_stores_the_tokens_that_the_relay_has_recorded(tmp_path):
    with Serving(tmp_path) as serving, httpx.Client(base_url=serving.url, trust_env=False) as client:
        for text in ("hello", "RUN echo one", "SLOW"):
            tool = {"type": "function", "function": {"name": "exec", "parameters": {"type": "object"}}}
            body = {"messages": [{"role": "user", "content": text}], "tools": [tool], "stream": True}
            assert "[DONE]" in client.post("/v1/chat/completions", json=body).text
        turns, calls, passages = serving.turns(), serving.engine_calls(), serving.passages()
    assert len(turns) == 3 and checks.storage_problems(turns, calls) == [] and checks.refused(passages) == []
    assert len(turns[-1].version_spans) >= 2 and serving.versions >= 2
    added = checks.gateway_seconds(passages, calls)
    assert len(added) == 3 and min(added) > 0 and checks.timing(added)["gateway_ms_max"] < 2000
