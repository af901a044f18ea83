"""The views of a real gateway's store as HTML and JSON, for any content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from openclaw.common.visible import visible, visible_line
from openclaw.page.html import STATIC
from openclaw.views.texts import token_text
from tests.fakes.fixtures import JudgeTurn, Talk, Visit
from tests.fakes.running_gateway import RunningGateway
from tests.openclaw.page.conftest import HOSTILE

TEMPLATES = STATIC.parent / "templates"


def test_the_start_page_shows_the_loops_live_sessions_and_counts(
    visit: Visit, talk: Talk, judge: JudgeTurn
) -> None:
    judge(talk("hi", "and now?")[0])
    page = visit("/")
    assert page.status_code == 200
    for word in ("Serving", "Collecting", "Judging", "Training", "/page/session?id=s1", "ada"):
        assert word in page.text
    found = visit("/admin/now").json()
    assert found["judging"]["good"] == 1.0 and found["training"]["ready"] == 1
    assert found["counts"]["turns"] == {"judged": 1, "captured": 1}
    assert found["serving"]["engines"][0]["ready"] and found["alarms"] == []
    assert [one["id"] for one in found["sessions"]] == ["s1"]


def test_an_alarm_reports_that_most_recent_updates_were_undone(visit: Visit, gateway: RunningGateway) -> None:
    store = gateway.store
    store.versions.weights_live(-1, 0, None, True, None, None)
    store.versions.weights_live(0, 1, 0, False, None, None)
    why = {"reason": "KL is 9", "stage": "likelihood", "measurements": {}}
    for number in (2, 3):
        store.versions.weights_rejected(number - 1, number, 1, None, why)
    assert visit("/admin/now").json()["alarms"] == [], "three updates say nothing yet"
    store.versions.weights_rejected(3, 4, 1, None, why)
    found = visit("/admin/now").json()
    assert (found["training"]["updates"], found["training"]["refused"]) == (4, 3)
    assert [one["name"] for one in found["alarms"]] == ["gate"]
    assert "3 of the last 4 updates were rejected or undone" in visit("/").text


def test_a_session_shows_turns_votes_hints_and_outcomes(visit: Visit, talk: Talk, judge: JudgeTurn) -> None:
    first, second = talk("what is 2+2?", "thanks!")
    judge(first)
    page = visit("/page/session", id="s1").text
    assert page.count("what is 2+2?") == 1, "a turn shows what is new, not the whole history"
    for words in (
        "the person said so",
        "be short",
        "waits for its batch",
        "waits for the next message",
        second,
    ):
        assert words in page
    turns = visit("/admin/sessions/s1").json()["data"]
    assert [turn["outcome"]["stage"] for turn in turns] == ["ready", "waiting"]
    assert turns[0]["judgements"][0]["votes"][0]["text"] == "the person said so"
    assert [one["reason"] for one in turns[0]["judgements"]] == ["the person said so", ""]
    assert re.search(r"because:</span> <span class=\"reason\" dir=\"auto\">the person said so", page)


def test_long_lists_are_paginated(visit: Visit, talk: Talk, gateway: RunningGateway) -> None:
    for number in range(4):
        talk("one", "two", "three", session=f"s{number}")
        gateway.store.sessions.end(f"s{number}")
    page = visit("/admin/sessions", limit=3).json()
    assert [one["id"] for one in page["ended"]] == ["s3", "s2", "s1"] and page["open"] == []
    rest = visit("/admin/sessions", limit=3, before=page["next"]).json()
    assert [one["id"] for one in rest["ended"]] == ["s0"] and rest["next"] is None
    turns = visit("/admin/sessions/s1", limit=2).json()
    assert [one["turn_index"] for one in turns["data"]] == [0, 1]
    assert [one["turn_index"] for one in visit("/admin/sessions/s1", after=turns["next"]).json()["data"]] == [
        2
    ]


def test_a_turn_shows_each_token_with_its_version_and_log_prob(
    visit: Visit, talk: Talk, gateway: RunningGateway
) -> None:
    (completion,) = talk("hi", answer="hello 你好")
    turn = gateway.turn(completion)
    found = visit(f"/admin/turns/{completion}/tokens").json()
    assert found["ids"] == turn.completion_ids and found["log_probs"] == turn.completion_log_probs
    assert found["versions"] == [3] * len(found["ids"]) and found["advantage"] is None
    page = visit("/page/turn", id=completion, by="surprise").text
    assert page.count('<span class="tok ') == len(found["ids"]) + 5, "one a token, and the legend"
    assert f"1 of {len(found['ids'])}, id {found['ids'][0]}, log-prob" in page
    assert "sampled the token" in visit("/page/turn", id=completion, by="nonsense").text


def test_hostile_texts_are_escaped(visit: Visit, talk: Talk, judge: JudgeTurn) -> None:
    (completion,) = talk(
        HOSTILE, answer="<img src=x onerror=alert(2)>", session="<b>s</b>", user="<i>eve</i>"
    )
    judge(completion, hint=HOSTILE)
    pages = [
        visit("/"),
        visit("/page/sessions"),
        visit("/page/session", id="<b>s</b>"),
        visit("/page/turn", id=completion),
    ]
    for page in pages:
        assert page.status_code == 200
        shown = re.sub(r'<script src="/page/static/[^"]+" defer></script>', "", page.text)
        for raw in ("<script", "<img", "<b>s", "<i>eve", "\u202e", "\x00", "\x1b", "49 "):
            assert raw not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[3].text and "⟨202E⟩" in pages[3].text


def test_invisible_characters_and_broken_bytes_are_shown_as_codes() -> None:
    assert visible("a\u200bb\ufeff\u2066c\td\r\ne") == "a⟨200B⟩b⟨FEFF⟩⟨2066⟩c\td\ne"
    assert visible_line("a\nb\u2028c\x1b[2J") == "a b c⟨001B⟩[2J"
    assert token_text(b"\xe4\xbd") == "⟨E4⟩⟨BD⟩" and token_text("你".encode()) == "你"


def test_a_missing_object_is_a_clear_error(visit: Visit) -> None:
    for path, query, status in (
        ("/page/session", {"id": "nobody"}, 404),
        ("/page/turn", {"id": "chatcmpl-none"}, 404),
        ("/page/turn", {"id": "a\x00b"}, 404),
        ("/page/session", {"id": "s1", "after": "x"}, 400),
        ("/admin/sessions", {"limit": "0"}, 400),
        ("/admin/sessions", {"before": "soon"}, 400),
        ("/admin/sessions/nobody", {}, 404),
        ("/page/static/../html.py", {}, 404),
        ("/page/static/vendor/README.md", {}, 404),
    ):
        assert visit(path, **query).status_code == status, path


def test_the_content_security_policy_allows_only_our_files(visit: Visit) -> None:
    page = visit("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert page.headers["cache-control"] == "no-store" and page.headers["x-frame-options"] == "DENY"
    for address in re.findall(r'(?:src|href)="(/page/static/[^"]+)"', page.text):
        file = visit(address)
        assert file.status_code == 200 and "immutable" in file.headers["cache-control"]


def test_templates_contain_no_inline_code_and_no_external_urls() -> None:
    for path in [*TEMPLATES.glob("*.html"), STATIC / "page.js", STATIC / "page.css"]:
        text = path.read_text()
        assert not re.search(
            r"<script(?! src=)(?! type=\"application/json\")|\sstyle=|\son\w+=|javascript:", text
        ), path
        assert not re.search(r"https?://|@import|\|\s*safe", text), path


def test_vendored_files_equal_those_of_the_packages() -> None:
    folder = STATIC / "vendor"
    rows = re.findall(
        r"^\| `([\w.]+)` \| .* \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == {
        path.name for path in folder.iterdir() if path.suffix in (".js", ".css")
    }
    for name, checksum in rows:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum
    assert Path(folder / "LICENSE-htmx.txt").is_file() and Path(folder / "LICENSE-uPlot.txt").is_file()
