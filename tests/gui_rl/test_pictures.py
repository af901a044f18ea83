"""Episodes with screenshots: the trained inputs are exactly what a random Qwen3-VL saw in a real browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from claw_lab.tiny_models.gui.data import errands
from gui_rl import generate as hooks
from gui_rl.episode.reading import PYAUTOGUI, GuiFormat
from gui_rl.episode.surroundings import Surroundings
from slime.agents.protocol import Tool, ToolCall
from slime.arguments import parse_args
from slime.rollout.event_loop import run
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import sampling_params
from slime.rollout.tokenizer import load_tokenizer
from slime.types import Sample
from tests import ROOT
from tests.fakes.engine_process import Server
from tests.fakes.tiny_vision_model import load_reference, reference_log_probs, save_vision_model
from tests.slime.rollout.conftest import record_engine

ROWS = str(ROOT / "gui-rl/data/train.jsonl")
WORDS = ("--custom-generate-function-path", "gui_rl.generate.generate", "--prompt-data", ROWS)
SCREEN = ("--gui-observation-type", "screenshot", "--gui-screen-width", "200", "--gui-screen-height", "200")
TURNS = 4


class Typing(GuiFormat):
    """Treats any output of a random model as the same action, which changes the page."""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        code = 'pyautogui.press("tab")\npyautogui.write("x")'
        return (ToolCall(PYAUTOGUI, {"code": code}),)


@pytest.fixture(scope="module")
def vision_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp("vision-model"), seed=1)


@pytest.fixture(scope="module")
def server(vision_folder: Path) -> Iterator[Server]:
    running = Server(vision_folder)
    yield running
    running.close()


@pytest.mark.parametrize("kept", [None, 2])
def test_the_sample_of_a_screenshot_episode_has_the_sampled_ids_and_images(
    needs_browser: None,
    server: Server,
    vision_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: int | None,
) -> None:
    monkeypatch.setattr(hooks, "GuiFormat", Typing)
    record_engine(tmp_path / "run", server.url)
    history = [] if kept is None else ["--gui-max-image-history-length", str(kept)]
    flags = [*WORDS, *SCREEN, *history, "--gui-max-steps", str(TURNS), "--reward-key", "score"]
    flags.append("--disable-rewards-normalization")
    ends = [word for token in range(9, 320, 4) for word in ("--rollout-stop-token-ids", str(token))]
    folders = ["--hf-checkpoint", str(vision_folder), "--run-dir", str(tmp_path / "run")]
    args: Any = parse_args([*folders, *flags, *ends, "--rollout-max-response-len", "60"], env={})
    hooks.start(args, {})
    task = next(one for one in errands(60, 1) if one.template[0] == "type")
    runner = SampleRunner(args, 0, sampling_params(args))
    surroundings: Surroundings = hooks._surroundings(200, 200, "playwright")
    try:
        begun = Sample(group_index=0, index=0, prompt=task.instruction, metadata=task.row()["metadata"])
        found = run(runner.run_sample(begun))
    finally:
        run(surroundings.close())
    samples: list[Sample] = [found] if kept is None else found
    assert [len(one.images) for one in samples] == ([TURNS] if kept is None else [1, 2, 2, 2])
    assert len({image.file for one in samples for image in one.images}) == TURNS, "each screen differs"
    tokenizer = load_tokenizer(str(vision_folder))
    left_out = [tokenizer.decode(one.tokens).count("[image left out]") for one in samples]
    assert left_out == ([0] if kept is None else [0, 0, 1, 2])
    assert all(task.instruction in tokenizer.decode(one.tokens) for one in samples)
    reference = load_reference(vision_folder)
    for sample in samples:
        pairs = zip(
            sample.rollout_log_probs or [], reference_log_probs(reference, sample), sample.mask, strict=True
        )
        assert all(abs(engine - known) < 1e-4 for engine, known, trained in pairs if trained)
