"""The laboratory writes the batch of a recorded run again, with other settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from claw_lab.benchmarks.learning.recorded_batch import changed, main
from openclaw.store import RolloutStore
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote
from slime.replay import load
from tests.fakes.hook_flags import hook_flags


@pytest.fixture
def run(tmp_path: Path, make_turn: Callable[..., NewTurn]) -> Path:
    """A run folder with one turn in the batch of rollout 3."""
    run = tmp_path / "run"
    with closing(RolloutStore(str(run / "buffer"))) as store:
        turn = store.turns.record(make_turn())
        assert store.turns.answer(turn.id, [{"role": "user", "content": "thanks"}])
        liked = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="test")
        assert store.judgements.finish(turn.id, [liked], SampleDraft(turn_id=turn.id, reward={"score": 1.0}))
        assert store.samples.lease(3, 1)
    arguments = vars(hook_flags("elsewhere", replay_steps=0, replay_samples=1))
    (run / "arguments.json").write_text(json.dumps(arguments), "utf-8")
    return run


def test_a_recorded_batch_is_written_with_changed_settings(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "buffer" / "buffer.db").read_bytes()
    out = str(tmp_path / "{rollout_id}.json")
    main(["--run", str(run), "--rollout", "3", "--out", out])
    (one,) = load(out, 3)
    assert one.tokens == [5, 6, 7, 8, 9] and not one.companion
    main(["--run", str(run), "--rollout", "3", "--out", out, "replay_steps=2"])
    assert [sample.companion for sample in load(out, 3)] == [0, 1, 2]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["learned"] is None
    assert (run / "buffer" / "buffer.db").read_bytes() == before, "the run itself is unchanged"


def test_a_batch_or_a_setting_that_does_not_exist_is_an_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no samples of rollout 4"):
        main(["--run", str(run), "--rollout", "4", "--out", str(tmp_path / "x.json")])
    with pytest.raises(SystemExit, match="no argument 'dream_row'"):
        changed({"dream_rows": 5}, ["dream_row=4"])
