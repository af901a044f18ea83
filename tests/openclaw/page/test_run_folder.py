"""The page of a finished run: read-only unless enabled, with its charts and token records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from claw_base import peer
from openclaw.errors import ConfigError
from openclaw.page.__main__ import create_app, main, source_of_run
from openclaw.store import RolloutStore
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote
from openclaw.views.source import MOST_ROWS, MetricsFile


@pytest.fixture
def run(tmp_path: Path, model: Path, make_turn: Callable[..., NewTurn]) -> Path:
    """Creates one trained turn of two tokens, its record, and two rows of metrics."""
    folder = tmp_path / "run"
    store = RolloutStore(folder / "buffer")
    turn = store.turns.record(make_turn(person="ada"))
    store.turns.answer(turn.id, [{"role": "user", "content": "thanks"}])
    judgement = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="rules")
    store.judgements.finish(turn.id, [judgement], SampleDraft(turn_id=turn.id, reward=1.0))
    store.samples.lease(0, 1)
    store.versions.weights_live(0, 1, 0, False, None, "c")
    record = {"version": 0, "advantage": [1.0, -2.0], "log_prob": [-0.25, -0.5], "teacher_gap": [0.0, None]}
    store.token_records.keep([{"sample": 1, "turn_id": turn.id, **record}])
    store.close()
    rows = [
        {"step": n, "weights/version": n + 1, "rollout/raw_reward": n / 2, "train/entropy": None}
        for n in (0, 1)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + '{"step": 2, "broken')
    (folder / "arguments.json").write_text(json.dumps({"hf_checkpoint": str(model), "retention_days": 7.0}))
    return folder


@pytest.fixture
def visit(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(
        peer, "can_identify_users", lambda: False
    )  # simulates a kernel that cannot identify connections
    source = source_of_run(run, None, None, writable=False)
    with TestClient(create_app(source), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        yield client
    assert source.recorder is not None
    source.recorder.close()


def test_every_view_shows_a_run_that_has_ended(visit: TestClient) -> None:
    for path in (
        "/",
        "/page/sessions",
        "/page/session?id=s",
        "/page/learning",
        "/page/versions",
        "/page/privacy",
    ):
        page = visit.get(path)
        assert page.status_code == 200 and "finished run" in page.text and "data-live" not in page.text
    assert "after 7 days" in visit.get("/page/privacy").text
    assert "learned from it" in visit.get("/page/session?id=s").text


def test_tokens_are_coloured_by_their_training_values(visit: TestClient) -> None:
    found = visit.get("/admin/turns/chatcmpl-0/tokens").json()
    assert found["advantage"] == [1.0, -2.0] and found["trained_from_version"] == 0
    assert found["gap"] == pytest.approx([0.0, -0.5 + 1 / 3]) and found["teacher"] == [0.0, None]
    page = visit.get("/page/turn?id=chatcmpl-0").text
    assert 'class="tok p3" title="1 of 2' in page and 'class="tok m4" title="2 of 2' in page
    assert 'class="tok n" title="2 of 2' in visit.get("/page/turn?id=chatcmpl-0&by=teacher").text
    for by in ("gap", "version", "surprise"):
        assert visit.get(f"/page/turn?id=chatcmpl-0&by={by}").status_code == 200


def test_charts_are_plotted_over_versions(visit: TestClient) -> None:
    found = visit.get("/admin/learning").json()
    assert found["x"] == [1, 2] and [chart["title"] for chart in found["charts"]] == ["Reward"]
    assert found["charts"][0]["lines"][0]["values"] == [0.0, 0.5]


def test_the_page_is_read_only_unless_enabled(visit: TestClient, run: Path) -> None:
    gone = {"session": "s", "sure": "1"}
    assert visit.post("/page/privacy/delete", data=gone).status_code == 409
    assert visit.post("/admin/turns/chatcmpl-0/verdict", json={"score": 1}).status_code == 409
    assert visit.post("/admin/turns/chatcmpl-0/again").status_code == 409
    assert visit.post("/page/versions/rollback", data={"version": "0", "sure": "1"}).status_code == 409
    source = source_of_run(run, None, None, writable=True)
    with TestClient(create_app(source), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        assert client.post("/page/privacy/delete", data=gone).status_code == 200
        assert client.get("/admin/sessions/s").status_code == 404
    assert source.recorder is not None
    source.recorder.close()


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="contains no buffer"):
        source_of_run(tmp_path, None, None, writable=False)
    assert main([str(tmp_path)]) == 2 and "contains no buffer" in capsys.readouterr().err
    assert main([str(tmp_path), "--host", "0.0.0.0"]) == 2 and not (tmp_path / "buffer").exists()


def test_long_charts_are_thinned_and_still_grow(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    curves = MetricsFile(path)
    assert curves.rows() == []
    path.write_text("".join(f'{{"step": {n}}}\n' for n in range(5000)) + '{"step": 5000')
    rows = curves.rows()
    assert len(rows) <= MOST_ROWS and (rows[0]["step"], rows[-1]["step"]) == (0.0, 4999.0)
    with path.open("a") as file:
        file.write("}\n")
    assert curves.rows()[-1]["step"] == 5000.0
    path.write_text('{"step": 7}\n')
    assert [row["step"] for row in curves.rows()] == [7.0]
