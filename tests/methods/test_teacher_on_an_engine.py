"""The inference teacher with a real engine: its log-probs equal a plain forward pass at the student's temperature."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from openclaw.errors import ConfigError, JudgeError
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings
from openclaw.judge.teacher.log_probs import Teacher, TeacherError, make_teacher
from openclaw.judge.teacher.settings import TeacherSettings
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store import RolloutStore
from openclaw.types import SampleDraft, SampleState, Turn
from tests import ROOT

MODEL = ROOT / "openclaw-test/tiny_claw/model"
HINT = "Use plain sentences."
MakeTurn = Callable[..., Turn]


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded", "--port", "0"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "slime")}
    process = subprocess.Popen(
        [*command, "--model-path", str(MODEL)], stdout=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def log_probs_of() -> Callable[[list[int], float], torch.Tensor]:
    from transformers import Qwen3ForCausalLM

    torch.set_num_threads(1)
    model = Qwen3ForCausalLM.from_pretrained(str(MODEL), dtype=torch.float32).eval()

    def log_probs(ids: list[int], temperature: float) -> torch.Tensor:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, dim=-1)

    return log_probs


def teacher_at(
    url: str, prompts: HintedPrompts, kind: str = "topk", top_k: int = 3, model: Path = MODEL
) -> Teacher:
    settings = TeacherSettings(opd_teacher_url=(url,), opd_teacher_model_path=str(model))
    judge = JudgeSettings(judge_retries=0)
    return make_teacher(settings, judge, prompts.tokenizer, kind, top_k, JudgeMetrics("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_every_answer_id_including_the_first_has_the_log_prob_of_a_forward_pass(
    engine: str,
    prompts: HintedPrompts,
    make_turn: MakeTurn,
    log_probs_of: Callable[[list[int], float], torch.Tensor],
    temperature: float,
) -> None:
    turn = make_turn(sampling={"temperature": temperature, "enable_thinking": True})
    candidate, size = prompts.candidate(turn, HINT), len(turn.completion_ids)
    teacher = teacher_at(engine, prompts)
    draft = SampleDraft(turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[candidate])
    taught = await teacher.taught(turn, draft)
    await teacher.close()
    table = log_probs_of(candidate, temperature)[-size - 1 : -1]
    expected = table.gather(-1, torch.tensor(turn.completion_ids)[:, None])[:, 0]
    assert taught.teacher_log_probs == pytest.approx(expected.tolist(), abs=1e-5)
    values, ids = table.topk(3)
    assert taught.teacher_topk_indices == ids.tolist()
    assert torch.allclose(torch.tensor(taught.teacher_topk_log_probs), values, atol=1e-5)
    assert taught.teacher_tokens_candidates is None and taught.reward == 1.0


async def test_without_a_hint_only_the_hybrid_scores_the_plain_prompt(
    engine: str, prompts: HintedPrompts, make_turn: MakeTurn
) -> None:
    turn = make_turn()
    bare = SampleDraft(turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[])
    hybrid, token = teacher_at(engine, prompts), teacher_at(engine, prompts, "token")
    asked, unasked = await hybrid.taught(turn, bare), await token.taught(turn, bare)
    off = SampleDraft(turn_id=turn.id, reward=1.0)
    assert await token.taught(turn, off) == off
    await hybrid.close()
    await token.close()
    assert asked.teacher_topk_indices is not None and len(asked.teacher_topk_indices) == len(
        turn.completion_ids
    )
    assert unasked.teacher_fields() == {}


class Scripted:
    """Returns given answers, like an engine with invalid answers."""

    def __init__(self, meta: object) -> None:
        self._meta = meta

    async def post(self, body: dict[str, object]) -> dict[str, object]:
        return {"meta_info": self._meta}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (None, "no meta_info"),
        ({}, "has 0 positions; 3 were expected"),
        ({"input_token_logprobs": [[None, 1], [-1.0, 5], [-1.0, 6], [-1.0, 6]]}, "has 4 positions"),
        ({"input_token_logprobs": [[None, 1], [None, 5], [-1.0, 6]]}, "None as the log-prob of id 5"),
        ({"input_token_logprobs": [[None, 1], [float("nan"), 5], [-1.0, 6]]}, "nan as the log-prob"),
        (
            {"input_token_logprobs": [[None, 1], [-1.0, 5], [-1.0, 7]]},
            "id 7 at a position where the answer has 6",
        ),
        ({"input_token_logprobs": [[None, 1], -1.0, -1.0]}, "not .log-prob, id. entries"),
        (
            {
                "input_token_logprobs": [[None, 1], [-1.0, 5], [-1.0, 6]],
                "input_top_logprobs": [None, [[-1.0, 5], [-1.0, 5]], [[-1.0, 6], [-2.0, 5]]],
            },
            "not 2 different ones",
        ),
    ],
)
async def test_a_missing_log_prob_is_rejected_and_never_replaced_by_zero(
    make_turn: MakeTurn, meta: object, message: str
) -> None:
    turn = make_turn(completion_ids=[5, 6])
    draft = SampleDraft(turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[[1, 5, 6]])
    with pytest.raises(TeacherError, match=message):
        await Teacher(Scripted(meta), "topk", 2).taught(turn, draft)  # type: ignore[arg-type]


async def test_an_engine_without_scaled_prompt_log_probs_teaches_only_turns_at_its_temperature(
    make_turn: MakeTurn,
) -> None:
    turn = make_turn(completion_ids=[5], sampling={"temperature": 0.6})
    draft = SampleDraft(turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[[1, 5]])
    sglang = Scripted({"input_token_logprobs": [[None, 1], [-1.0, 5]]})
    with pytest.raises(TeacherError, match=r"at temperature 0\.6"):
        await Teacher(sglang, "token").taught(turn, draft)  # type: ignore[arg-type]


async def test_another_vocabulary_and_an_unsupported_k_are_rejected_at_start(
    prompts: HintedPrompts, tmp_path: Path
) -> None:
    shutil.copytree(MODEL, tmp_path / "other")
    path = tmp_path / "other" / "tokenizer.json"
    config = json.loads(path.read_text())
    vocabulary = config["model"]["vocab"]
    one, two = list(vocabulary)[300:302]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="different vocabulary"):
        teacher_at("http://127.0.0.1:1", prompts, model=tmp_path / "other")
    with pytest.raises(ConfigError, match="--distill-topk is 100000"):
        teacher_at("http://127.0.0.1:1", prompts, top_k=100_000)


async def test_a_missing_teacher_is_an_error(prompts: HintedPrompts, make_turn: MakeTurn) -> None:
    turn = make_turn()
    teacher = teacher_at("http://127.0.0.1:1", prompts, "token")
    draft = SampleDraft(
        turn_id=turn.id, reward=1.0, teacher_tokens_candidates=[prompts.candidate(turn, HINT)]
    )
    with pytest.raises(JudgeError):
        await teacher.taught(turn, draft)
    await teacher.close()


def worker(buffer: Path, *flags: str) -> subprocess.Popen[str]:
    paths = [ROOT, ROOT / "openclaw-opd"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "openclaw.judge.worker", "--rl-buffer-dir", str(buffer)]
    command += [
        "--method-path",
        "openclaw_opd.opd_topk:sample_from_judged_turn",
        "--teacher-source",
        "inference",
        *flags,
    ]
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


def test_a_judge_worker_stores_the_engine_teachers_log_probs(
    engine: str, prompts: HintedPrompts, answered: Callable[..., Turn], store: RolloutStore, tmp_path: Path
) -> None:
    turn = answered("Please write it in natural sentences.")
    store.judgements.release_claim(turn.id)
    running = worker(
        tmp_path / "buffer", "--model-path", str(MODEL), "--method-option", "distill_topk=5",
        "--opd-teacher-url", engine, "--opd-teacher-model-path", str(MODEL),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while (record := store.samples.of_turn(turn.id)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        running.terminate()
        assert running.wait(timeout=20) == 0
    assert record is not None and record.state is SampleState.READY
    assert record.teacher_log_probs is not None and len(record.teacher_log_probs) == len(turn.completion_ids)
    assert {len(row) for row in record.teacher_topk_indices or []} == {5}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "name the policy's model folder"),
        (["--model-path", str(MODEL)], "give --opd-teacher-url"),
    ],
)
def test_a_worker_whose_teacher_is_unreachable_does_not_start(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    running = worker(tmp_path, *flags)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 2 and message in told
