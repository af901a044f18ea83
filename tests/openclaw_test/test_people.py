"""The student, the teaching assistant and the teacher of the evaluation, and the scoring of their sessions."""

from __future__ import annotations

import json
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openclaw_test.people.agents import AgentError, OpenClawAgent
from openclaw_test.people.chat import main
from openclaw_test.people.gsm8k import BadDataset, WordProblem, own_problems, read_problems
from openclaw_test.people.phases import ASSISTANT, STUDENT, TEACHER
from openclaw_test.people.preferences import assess, sessions_to_three
from openclaw_test.people.scoring import nearest_level, read_results, summarise
from openclaw_test.people.tasks import CODING, TOOL_USE, is_right_call, run_code

PROBLEM = WordProblem("Tom has 12 apples and buys 7 more. How many?", Decimal(19), ("12+7=19",))
PROSE = "Tom starts with 12 apples and buys 7 more, and 12 + 7 = 19, so he has 19 apples."
LIST = "1. **Start**: 12\n2. 12 + 7 = 19\nFinal answer: 19"


class Fake:
    """An OpenAI-compatible server that answers by a function of (headers, body); None is a failure."""

    def __init__(self, answer):
        self.requests = []
        self.status = 200
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.requests.append((dict(self.headers), body))
                text = answer(body)
                data = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
                self.send_response(503 if text is None else fake.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def fake():
    made = []

    def make(answer):
        made.append(Fake(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def dataset(tmp_path):
    file = tmp_path / "problems.json"
    file.write_text(json.dumps(own_problems(3, seed=1)))
    return file


def test_custom_problems_and_gsm8ks_format_are_read(dataset, tmp_path):
    assert len(read_problems(dataset)) == 3 and read_problems(dataset, 1)[0].equations
    lines = tmp_path / "gsm8k.jsonl"
    lines.write_text('{"question": "q", "answer": "so 60,000 + 5,960 = 65,960\\n#### 65,960"}\n')
    assert read_problems(lines) == [WordProblem("q", Decimal(65960))]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "neither"), ("[]", "no problems"), ('[{"q": 1}]', "entry 0 has no text"),
     ('[{"question": "q"}]', "no 'ground_truth_answer'"),
     ('[{"question": "q", "ground_truth_answer": "many"}]', "is not a number")],
)  # fmt: skip
def test_an_invalid_file_is_reported_with_its_entry(tmp_path, text, message):
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(BadDataset, match=message):
        read_problems(file)


def test_each_person_has_a_different_preference():
    assert assess("student", PROBLEM, PROSE).content
    assert not assess("student", PROBLEM, LIST).manners and assess("student", PROBLEM, LIST).right
    detailed = "Tom has 12 apples at first. Then he buys 7 more of them. So 12 + 7 = 19. Tom has 19 apples."
    assert not assess("TA", PROBLEM, PROSE).content and assess("TA", PROBLEM, detailed).content
    assert not assess("teacher", PROBLEM, PROSE).content
    assert assess("teacher", PROBLEM, f"Well done for asking! {PROSE}").content


def test_wrong_results_missing_steps_and_collapse_are_distinguished():
    wrong = assess("student", PROBLEM, "He had 12 apples and bought more, 12 + 7 = 18, so he has 18 apples.")
    assert not wrong.right and not wrong.steps
    lost = assess(
        "student", PROBLEM, "After buying some more of them Tom has a total of 19 apples in his hands."
    )
    assert lost.right and not lost.steps and not lost.bare
    assert assess("student", PROBLEM, "19").bare


def test_three_in_a_row_is_counted_from_the_first_session():
    assert sessions_to_three([True, True, False, True, True, True, False]) == 6
    assert sessions_to_three([True, True]) is None


def test_the_student_complains_until_satisfied_and_the_first_reply_is_recorded(
    fake, dataset, tmp_path, monkeypatch, capsys
):
    problems = read_problems(dataset)

    def answer(body):
        if not body["messages"]:
            return ""
        question = body["messages"][0]["content"]
        problem = next(p for p in problems if p.question == question)
        if len(body["messages"]) == 1:
            return f"1. **Answer**: {problem.answer}"
        steps = " and ".join(equation.replace("=", " = ") for equation in problem.equations)
        return f"I looked at it again and worked it out as {steps}, which makes {problem.answer}."

    server = fake(answer)
    out = tmp_path / "first.txt"
    flags = [
        "--dataset",
        str(dataset),
        "--direct",
        server.url,
        "--talker",
        "scripted",
        "--pause",
        "0",
        "--output",
        str(out),
    ]
    assert main(STUDENT, flags) == 0
    assert "3 of 3 problems completed" in capsys.readouterr().out
    results = read_results(out)
    assert [number for number, _ in results] == [0, 1, 2] and all(
        "**Answer**" in reply for _, reply in results
    )
    summary = summarise("student", problems, results)
    assert (summary.preference, summary.right, summary.sessions_to_three) == (0.0, 1.0, None)
    sessions = {headers["X-Session-Id"] for headers, _ in server.requests}
    assert len(sessions) == 3 and sum("X-Session-Done" in headers for headers, _ in server.requests) == 3


def test_a_model_plays_the_person_and_openclaw_gets_one_message_a_turn(fake, dataset, tmp_path, monkeypatch):
    person = fake(
        lambda body: (
            "<think>hm</think>Please make it natural." if len(body["messages"]) < 5 else "HOMEWORK_DONE"
        )
    )
    agent = fake(lambda body: "1. **Step**")
    for name, value in {
        "OPENCLAW_GATEWAY_TOKEN": "t", "OPENCLAW_GATEWAY_URL": agent.url, "OPENCLAW_WORKSPACE": str(tmp_path / "work"),
        "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{person.url}/v1", "EXTERNAL_MODEL": "m",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    flags = [
        "--dataset",
        str(dataset),
        "--num-problems",
        "1",
        "--pause",
        "0",
        "--output",
        str(tmp_path / "r.txt"),
    ]
    assert main(STUDENT, flags) == 0
    assert (tmp_path / "work" / "homework" / "0.txt").read_text().startswith("Problem:\n")
    bodies = [body for _, body in agent.requests]
    assert [len(body["messages"]) for body in bodies] == [1, 1] and len(
        {body["user"] for body in bodies}
    ) == 1
    assert (
        bodies[0]["model"] == "openclaw/default" and "homework/0.txt" in bodies[0]["messages"][0]["content"]
    )
    assert bodies[1]["messages"][0]["content"] == "Please make it natural."
    roles = [message["role"] for message in person.requests[-1][1]["messages"]]
    assert roles == ["system", "assistant", "user", "assistant", "user"]


def test_a_failing_agent_is_retried_and_then_reported(fake):
    tries = []

    def answer(body):
        tries.append(1)
        return None if len(tries) < 3 else "there"

    agent = OpenClawAgent(fake(answer).url, "t", retries=3)
    agent._http._wait = 0.01
    assert agent.say("s", "hi") == "there" and len(tries) == 3
    dead = OpenClawAgent(fake(lambda body: None).url, "t", retries=1)
    dead._http._wait = 0.01
    with pytest.raises(AgentError, match="HTTP 503"):
        dead.say("s", "hi")


def test_missing_keys_and_phases_out_of_order_are_reported_in_one_line(
    dataset, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("OPENCLAW_GATEWAY_TOKEN", raising=False)
    assert main(STUDENT, ["--dataset", str(dataset)]) == 1
    assert "OPENCLAW_GATEWAY_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("OPENCLAW_GATEWAY_TOKEN", "t")
    monkeypatch.setenv("OPENCLAW_WORKSPACE", str(tmp_path))
    for phase in (ASSISTANT, TEACHER):
        assert main(phase, ["--dataset", str(dataset), "--talker", "scripted"]) == 1
        assert "run the phase before this one first" in capsys.readouterr().err


def test_a_wrong_token_ends_the_run_at_once_and_zero_sessions_are_a_failure(
    fake, dataset, tmp_path, monkeypatch, capsys
):
    agent = fake(lambda body: "hi")
    monkeypatch.setenv("OPENCLAW_GATEWAY_TOKEN", "wrong")
    monkeypatch.setenv("OPENCLAW_GATEWAY_URL", agent.url)
    monkeypatch.setenv("OPENCLAW_WORKSPACE", str(tmp_path / "work"))
    flags = ["--dataset", str(dataset), "--talker", "scripted", "--pause", "0"]
    flags += ["--output", str(tmp_path / "r.txt")]
    agent.status = 401
    assert main(STUDENT, flags) == 1 and len(agent.requests) == 1
    assert "does not accept the OPENCLAW_GATEWAY_TOKEN (HTTP 401" in capsys.readouterr().err
    agent.status = 404
    assert main(STUDENT, flags) == 1 and len(agent.requests) == 4
    assert capsys.readouterr().err.count("refused (HTTP 404)") == 3


def test_only_boxed_levels_near_the_level_are_counted():
    assert nearest_level("first \\boxed{0.2}, then \\boxed{0.8}") == 0.75
    assert nearest_level("\\boxed{1}") == 1.0
    assert nearest_level("\\boxed{3}") is None and nearest_level("0.75") is None


def test_programs_are_judged_by_running_them():
    item = next(item for item in CODING if "factorial" in item.prompt)
    good = "Here:\n```python\ndef factorial(n):\n    return 1 if n == 0 else n * factorial(n - 1)\n```"
    assert run_code(good, item)
    assert not run_code(good.replace("n *", "n +"), item)
    assert not run_code(
        "```python\nwhile True: pass\n```".replace("while True: pass", "import sys; sys.exit(0)"), item
    )
    assert not run_code("no code", item)


def test_tool_calls_are_judged_by_name_and_arguments():
    item = next(item for item in TOOL_USE if item.tool == "multiply")
    factors = list(item.arguments.values())

    def call(name, **arguments):
        return {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]}

    assert is_right_call(call("multiply", a=factors[1], b=str(factors[0])), item)
    assert not is_right_call(call("multiply", a=1, b=2), item)
    assert not is_right_call(call("set_timer", minutes=3), item)
    assert not is_right_call({"content": "multiply"}, item)
    broken = {"tool_calls": [{"function": {"name": "multiply", "arguments": '{"a": 1'}}]}
    assert not is_right_call(broken, item)
