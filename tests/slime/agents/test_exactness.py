"""Compares whole trajectories over the embedded engine, through weight updates, with plain forward passes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from slime.agents import Action, EpisodeLimits, Observation, Outcome, Start, Task, agent
from slime.engines.client import EngineControl
from slime.rollout.event_loop import run
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import sampling_params
from slime.types import Sample
from tests.fakes.engine_process import Server
from tests.fakes.fixtures import ParseArgs
from tests.fakes.tiny_engine_model import plain_model, save_model
from tests.slime.rollout.conftest import make_args, model, record_engine  # noqa: F401

TEMPLATE = (
    "{% for message in messages %}<bos>{{ message.role }}\n{{ message.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
TURNS, UPDATED_AFTER = 6, (1, 3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Returns two versions of one model, with a chat template."""
    found = [save_model(tmp_path_factory.mktemp(f"version{seed}"), seed) for seed in (1, 2)]
    for folder in found:
        config = {"eos_token": "<eos>", "bos_token": "<bos>", "chat_template": TEMPLATE}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return found


@pytest.fixture(scope="module")
def server(folders: list[Path]) -> Iterator[Server]:
    running = Server(folders[0])
    yield running
    running.close()


class Updating:
    """Publishes other weights while it answers a turn, as a trainer would."""

    folders: list[Path]
    control: EngineControl
    live: int = 0

    async def reset(self, task: Task) -> Start:
        self.turn = 0
        return Start([{"role": "user", "content": str(task.prompt)}])

    async def step(self, action: Action) -> Observation:
        if self.turn in UPDATED_AFTER:
            await asyncio.to_thread(self._update)
        self.turn += 1
        return Observation([{"role": "tool", "content": f"seen {self.turn}"}], done=self.turn == TURNS)

    def _update(self) -> None:
        mine = type(self)
        mine.live += 1
        mine.control.prepare(str(mine.folders[mine.live % 2]), mine.live)
        mine.control.switch(mine.live)

    async def evaluate(self) -> Outcome:
        return Outcome(1.0, True)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("per_turn", [False, True], ids=["one sample", "one a turn"])
def test_log_probs_of_a_trajectory_are_those_of_the_weights_that_wrote_each_token(
    server: Server,
    folders: list[Path],
    make_args: ParseArgs,  # noqa: F811
    tmp_path: Path,
    per_turn: bool,
) -> None:
    record_engine(tmp_path / "run", server.url)
    stops = [word for token in range(40, 320, 3) for word in ("--rollout-stop-token-ids", str(token))]
    words = [
        "--hf-checkpoint",
        str(folders[0]),
        "--reward-key",
        "score",
        "--rollout-temperature",
        "0.9",
        *stops,
    ]
    args = make_args([{"input": "x"}], *words, "--rollout-max-response-len", "200")
    runner = SampleRunner(args, 0, sampling_params(args))
    runner.generate_function = agent(Updating, EpisodeLimits(turns=TURNS), per_turn=per_turn)
    with EngineControl(server.url, "embedded") as control:
        Updating.folders, Updating.control, Updating.live = folders, control, control.info().version
        first = Updating.live
        made = run(runner.run_sample(Sample(group_index=0, index=0, prompt="Begin.")))
    samples = made if per_turn else [made]
    assert len(samples) == (TURNS if per_turn else 1), samples[0].metadata
    assert set().union(*(sample.versions for sample in samples)) == {first, first + 1, first + 2}
    networks = [plain_model(folder) for folder in folders]
    for sample in samples:
        for version, start, end in sample.version_spans:
            with torch.no_grad():
                logits = networks[version % 2](torch.tensor([sample.tokens])).logits[0] / sample.temperature
            table, begin = torch.log_softmax(logits, dim=-1), sample.prompt_length
            places = range(begin + start, begin + end)
            expected = [table[place - 1, sample.tokens[place]].item() for place in places]
            assert sample.rollout_log_probs[start:end] == pytest.approx(expected, abs=1e-4)
