"""Tests that a rented engine speaks the native protocol: exact ids, versions fixed for each answer, retries."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_base.run_folder.usage import Meter
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.engine.server import RentedServer
from slime.rented.engine.weights import RentedVersions
from slime.rented.service import SamplingRequest, ServiceAway, ServiceForgot, ServiceRefuses, ServiceSettings
from slime.rented.versions import RentedWeights, write_version
from tests.fakes.local_service import House, LocalSampler, LocalService, log_probs, move_in
from tests.fakes.tiny_engine_model import save_model

PROMPT = [5, 9, 13, 21]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("rented"), 0)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr("slime.rented.engine.asking.FIRST_PAUSE", 0.01)
    return move_in()


class Client:
    """A client of an engine in this process."""

    def __init__(self, folder: Path, chunk: int = 0, tmp_path: Path | None = None) -> None:
        self.service = LocalService(ServiceSettings(str(folder)))
        self.versions = RentedVersions(self.service, str(folder))
        self.meter = Meter(None, "serving")
        server = RentedServer(self.versions, ModelFolder.read(str(folder)), self.meter, chunk, 8)
        transport = httpx.ASGITransport(app=server.app(), client=("this process", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=30)

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def generate(self, most: int = 6, **more: Any) -> dict[str, Any]:
        sampling = {"max_new_tokens": most, "ignore_eos": True, **more.pop("sampling", {})}
        body = {"input_ids": PROMPT, "sampling_params": sampling, "return_logprob": True, **more}
        answer = await self.post("/generate", body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def version(self, tmp_path: Path, number: int) -> str:
        """Creates a folder that names another model's weights."""
        address = self.service.new().save_sampler(f"v{number}").result()
        write_version(tmp_path / f"v{number}", RentedWeights(self.versions.model, address))
        return str(tmp_path / f"v{number}")


async def test_an_answer_has_the_services_ids_and_log_probs(house: House, folder: Path) -> None:
    client = Client(folder)
    answer = await client.generate(logprob_start_len=0)
    ids, meta = answer["output_ids"], answer["meta_info"]
    expected = log_probs(client.service._base(), PROMPT + ids).tolist()
    assert [entry[0] for entry in meta["output_token_logprobs"]] == pytest.approx(expected[3:], abs=1e-5)
    assert [entry[0] for entry in meta["input_token_logprobs"][1:]] == pytest.approx(expected[:3], abs=1e-5)
    assert meta["input_token_logprobs"][0][:2] == [None, PROMPT[0]]
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert meta["weight_versions"] == [{"version": "0", "start": 0, "end": 6}]
    assert client.meter.tokens == {"prefill": 8, "sample": 6, "train": 0}


async def test_an_answer_streams_in_steps_if_requested(house: House, folder: Path) -> None:
    client = Client(folder, chunk=2)
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}, "stream": True}
    text = (await client.post("/generate", body)).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert [len(event["output_ids"]) for event in events] == [2, 4, 5]
    assert events[-1]["meta_info"]["finish_reason"]["type"] == "length"
    assert text.endswith("data: [DONE]\n\n")


async def test_an_answer_ends_at_a_stop_id_and_at_a_stop_string(house: House, folder: Path) -> None:
    client = Client(folder)
    whole = await client.generate(sampling={"temperature": 0.0})
    third = whole["output_ids"][2]
    first = whole["output_ids"].index(third)
    by_id = await client.generate(sampling={"temperature": 0.0, "stop_token_ids": [third]})
    assert by_id["output_ids"] == whole["output_ids"][: first + 1]
    assert by_id["meta_info"]["finish_reason"] == {"type": "stop", "matched": third}
    word = ModelFolder.read(str(folder)).text(whole["output_ids"][:2], skip_special_tokens=True)
    by_text = await client.generate(sampling={"temperature": 0.0, "stop": [word]})
    assert by_text["meta_info"]["finish_reason"] == {"type": "stop", "matched": word}
    assert by_text["output_ids"] == whole["output_ids"][: len(by_text["output_ids"])]
    assert len(by_text["output_ids"]) <= 2


async def test_a_version_goes_live_in_two_phases_and_running_answers_keep_the_old_one(
    house: House, folder: Path, tmp_path: Path
) -> None:
    client = Client(folder, chunk=1)
    path = client.version(tmp_path, 1)
    ready = (await client.post("/prepare_weights", {"model_path": path, "weight_version": "1"})).json()
    assert (await client.http.get("/model_info")).json()["weight_version"] == "0"
    open_answer = asyncio.create_task(client.generate(most=40))
    await asyncio.sleep(0.05)
    live = (await client.post("/switch_weights", {"weight_version": "1"})).json()
    assert live["checksum"] == ready["checksum"] == (await client.http.get("/model_info")).json()["checksum"]
    assert (await open_answer)["meta_info"]["weight_versions"] == [{"version": "0", "start": 0, "end": 40}]
    assert (await client.generate())["meta_info"]["weight_version"] == "1"


async def test_a_version_missing_at_the_service_is_rejected(
    house: House, folder: Path, tmp_path: Path
) -> None:
    client = Client(folder)
    path = client.version(tmp_path, 1)
    house.kept.clear()
    answer = await client.post("/prepare_weights", {"model_path": path, "weight_version": "1"})
    assert answer.status_code == 400
    assert (await client.post("/switch_weights", {"weight_version": "1"})).status_code == 400
    assert (await client.generate())["meta_info"]["weight_version"] == "0"


async def test_a_request_waits_while_the_service_is_unavailable(
    house: House, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(folder)
    house.away = 4
    answers = await asyncio.gather(*(client.generate() for _ in range(3)))
    assert [len(answer["output_ids"]) for answer in answers] == [6, 6, 6]
    told = [record.message for record in caplog.records if "does not answer" in record.message]
    assert len(told) == 1
    assert (await client.http.get("/health")).status_code == 200


async def test_a_request_rejected_by_the_service_does_not_affect_others(house: House, folder: Path) -> None:
    client = Client(folder)
    house.refuses = lambda ids: list(ids) == PROMPT
    answer = await client.post("/generate", {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 2}})
    assert answer.status_code == 400
    assert "not liked" in answer.json()["error"]["message"]
    other = await client.post("/generate", {"input_ids": [7, 8], "sampling_params": {"max_new_tokens": 2}})
    assert other.status_code == 200


async def test_an_aborted_answer_returns_its_tokens_so_far(house: House, folder: Path) -> None:
    client = Client(folder, chunk=1)
    running = asyncio.create_task(client.generate(most=400, rid="one"))
    await asyncio.sleep(0.1)
    await client.post("/abort_request", {"rid": "one"})
    answer = await running
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    assert len(answer["output_ids"]) < 400
    assert (await client.generate(rid="one"))["meta_info"]["finish_reason"]["type"] == "length"


async def test_a_version_can_be_tried_before_it_is_live(house: House, folder: Path, tmp_path: Path) -> None:
    client = Client(folder)
    body = {
        "weight_version": "1",
        "model_path": client.version(tmp_path, 1),
        "prompts": [PROMPT],
        "max_new_tokens": 4,
    }
    [answer] = (await client.post("/try_weights", body)).json()["answers"]
    assert len(answer["ids"]) == len(answer["log_probs"]) <= 4
    assert (await client.http.get("/model_info")).json()["weight_version"] == "0"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"sampling_params": {"min_p": 0.1}}, "min_p"),
        ({"sampling_params": {"logit_bias": {"3": 1.0}}}, "logit_bias"),
        ({"top_logprobs_num": 3}, "top_logprobs_num"),
        ({"input_logprob_temperature": 0.5}, "temperature 1"),
        ({"input_ids": []}, "at least one token"),
        ({"input_ids": [99999]}, "ids must be"),
    ],
)
async def test_requests_unsupported_by_a_service_are_rejected(
    body: dict[str, Any], named: str, house: House, folder: Path
) -> None:
    answer = await Client(folder).post("/generate", {"input_ids": PROMPT, **body})
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]


def test_an_incomplete_model_folder_is_rejected(tmp_path: Path) -> None:
    from slime.errors import ConfigError

    with pytest.raises(ConfigError, match=r"no config\.json"):
        ModelFolder.read(str(tmp_path))
    (tmp_path / "config.json").write_text('{"vocab_size": 10}')
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        ModelFolder.read(str(tmp_path))


async def test_a_service_with_one_version_at_a_time_loads_between_answers(
    house: House, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running answers end before the load, the next ones wait for it, and each token reports its version."""
    monkeypatch.setattr(LocalService, "exclusive", True)
    client = Client(folder, chunk=2)
    versions = client.versions
    body = {"model_path": client.version(tmp_path, 1), "weight_version": "1"}
    assert (await client.post("/prepare_weights", body)).json()["success"]
    assert house.loaded is None, "it would answer with it at once"
    real = type(client.service).load
    loaded_at: list[int] = []

    def load(service: LocalService, address: str | None) -> None:
        loaded_at.append(house.asked.count("sample"))
        real(service, address)

    monkeypatch.setattr(LocalService, "load", load)
    answering = asyncio.create_task(client.generate(most=6))
    while not house.asked.count("sample"):
        await asyncio.sleep(0)
    switched = await client.post("/switch_weights", {"weight_version": "1"})
    assert switched.json()["weight_version"] == "1"
    answer = await answering
    spans = answer["meta_info"]["weight_versions"]
    first = 2 * loaded_at[0]
    assert spans == [{"version": "0", "start": 0, "end": first}, {"version": "1", "start": first, "end": 6}]
    assert house.loaded == versions.live.weights.sampler


async def test_a_version_that_cannot_be_loaded_leaves_the_old_one_live(
    house: House, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalService, "exclusive", True)
    client = Client(folder)

    def refuse(service: LocalService, address: str | None) -> None:
        raise ServiceRefuses("no such snapshot")

    await client.post("/prepare_weights", {"model_path": client.version(tmp_path, 1), "weight_version": "1"})
    monkeypatch.setattr(LocalService, "load", refuse)
    switched = await client.post("/switch_weights", {"weight_version": "1"})
    assert switched.status_code >= 400 and "no such snapshot" in switched.text
    assert (await client.generate())["meta_info"]["weight_version"] == "0"


async def test_a_candidate_is_not_tried_if_it_would_have_to_be_loaded(
    house: House, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalService, "exclusive", True)
    client = Client(folder)
    await client.post("/prepare_weights", {"model_path": client.version(tmp_path, 1), "weight_version": "1"})
    asked = {"weight_version": "1", "prompts": [PROMPT], "max_new_tokens": 2}
    refused = await client.post("/try_weights", asked)
    assert refused.status_code >= 400 and "only one version at a time" in refused.text


async def test_an_answer_whose_version_is_lost_continues_with_the_live_one(
    house: House, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services may lose weights in an outage: each token reports its version."""
    client = Client(folder, chunk=2)
    path = client.version(tmp_path, 1)
    await client.post("/prepare_weights", {"model_path": path, "weight_version": "1"})
    lost = asyncio.Event()
    kept = client.versions.named(1, None).sampler()
    sample = LocalSampler.sample

    def forgets(sampler: LocalSampler, wish: SamplingRequest) -> Any:
        if sampler is kept or not wish.prompt[len(PROMPT) :]:
            return sample(sampler, wish)
        lost.set()
        raise ServiceAway("model not loaded")

    monkeypatch.setattr(LocalSampler, "sample", forgets)
    answering = asyncio.create_task(client.generate(most=6))
    await asyncio.wait_for(lost.wait(), 30)
    await client.post("/switch_weights", {"weight_version": "1"})
    answer = await asyncio.wait_for(answering, 30)
    spans = [{"version": "0", "start": 0, "end": 2}, {"version": "1", "start": 2, "end": 6}]
    assert answer["meta_info"]["weight_versions"] == spans


async def test_an_engine_reports_a_lost_version_until_another_one_is_live(
    house: House, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(folder)
    path, sample = client.version(tmp_path, 1), LocalSampler.sample
    await client.post("/prepare_weights", {"model_path": path, "weight_version": "1"})
    kept = client.versions.named(1, None).sampler()

    def forgets(sampler: LocalSampler, wish: SamplingRequest) -> Any:
        if sampler is kept:
            return sample(sampler, wish)
        raise ServiceForgot("Model model_1 not loaded")

    async def forgotten() -> bool:
        return bool((await client.http.get("/model_info")).json()["forgotten"])

    monkeypatch.setattr(LocalSampler, "sample", forgets)
    assert not await forgotten(), "nobody has asked yet"
    answering = asyncio.create_task(client.generate())
    async with asyncio.timeout(30):
        while not await forgotten():
            await asyncio.sleep(0)
        await client.post("/switch_weights", {"weight_version": "1"})
        assert not await forgotten()
        assert (await answering)["meta_info"]["weight_version"] == "1"
