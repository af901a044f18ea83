"""Tinker's protocol over HTTP as skyrl 0.4.0 answers SDK 0.25; compared with recorded answers of that server.

It uses a real tiny model in this process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as pb

from slime.rented.service import SamplingRequest, ServiceSettings
from tests.fakes import trainer
from tests.fakes.local_service import LocalSampler, LocalService, log_probs
from tests.fakes.trainer import Body, Call, Refused, TrainerHouse, ids_of, later

PROTO = "application/x-protobuf"
MOST_RANK = 8
STOPS = {True: pb.STOP_REASON_STOP, False: pb.STOP_REASON_LENGTH}


class TinkerHouse(TrainerHouse):
    """State of the fake. `model`: the only base model. `key`: the only accepted one; "": any."""

    key = ""

    def __init__(self, model: str) -> None:
        super().__init__(LocalService(ServiceSettings(model)))
        self.model = model
        self.samplers: dict[str, LocalSampler] = {}


def app(house: TinkerHouse) -> Starlette:
    async def call(request: Request) -> Response:
        name = request.path_params["call"]
        house.asked.append(name)
        if name not in CALLS:
            return JSONResponse({"detail": "Not Found"}, 404)
        if house.key and request.headers.get("x-api-key") != house.key:
            return JSONResponse({"detail": "Invalid API key"}, 401)
        body = await request.body()
        if request.headers.get("content-type", "").startswith(PROTO):
            asked: Body = request_of(pb.ForwardBackwardRequest.FromString(body))
        else:
            asked = await request.json() if body else {}
        try:
            answer = CALLS[name](house, asked)
        except Refused as error:
            return JSONResponse({"detail": str(error)}, 400)
        if isinstance(answer, bytes):
            return Response(answer, media_type=PROTO)
        return JSONResponse(answer)

    return Starlette(routes=[Route("/api/v1/{call:path}", call, methods=["GET", "POST"])])


def request_of(message: Any) -> Body:
    """Returns a training request as JSON data."""
    data = []
    for datum in message.data:
        chunks = [
            {"tokens": np.frombuffer(one.encoded_text.tokens, np.int32).tolist()} for one in datum.model_input
        ]
        kinds = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
        inputs = {
            name: {"data": np.frombuffer(tensor.dense, kinds[tensor.dtype]).tolist()}
            for name, tensor in datum.loss_fn_inputs.items()
        }
        data.append({"model_input": {"chunks": chunks}, "loss_fn_inputs": inputs})
    asked = {"data": data, "loss_fn": message.loss_fn, "loss_fn_config": dict(message.loss_fn_config)}
    return {"model_id": message.model_id, "input": asked, "forward_only": message.forward_only}


def passed(house: TinkerHouse, body: Body) -> bytes:
    known(house, body)
    run = trainer.forward if body["forward_only"] else trainer.forward_backward
    rows = [np.asarray(row, np.float32) for row in run(house, body["input"], body["model_id"])]
    found = pb.ForwardBackwardOutput(loss_fn_output_type="scalar")
    record = found.loss_fn_outputs.add()
    record.num_datums = len(rows)
    ends = np.cumsum([0, *(row.nbytes for row in rows)]).astype(np.int64)
    for name in ("elementwise_loss", "logprobs"):
        batch = pb.BatchedTensor(
            data=b"".join(row.tobytes() for row in rows), offsets=ends.tobytes(), dtype=pb.DTYPE_FLOAT32
        )
        record.fields[name].CopyFrom(batch)
    return bytes(found.SerializeToString())


def known(house: TinkerHouse, body: Body) -> None:
    if body["model_id"] not in house.trained:
        raise Refused(f"Model {body['model_id']} not loaded (likely stale request from previous server)")


def create_model(house: TinkerHouse, body: Body) -> Body:
    rank = body["lora_config"]["rank"]
    if not 1 <= rank <= MOST_RANK:
        raise Refused(f"LoRA rank {rank} must be between 1 and {MOST_RANK}")
    made = trainer.create_model(house, body)
    config = {"alpha": 32.0, "seed": 0, "train_attn": True, "train_mlp": True, "train_unembed": True} | {
        name: value for name, value in body["lora_config"].items() if value is not None
    }
    return {"model_id": made["model_id"], "base_model": house.model, "lora_config": config}


def made_model(house: TinkerHouse, body: Body) -> Body:
    """Returns the name of a model at once; whether it works is known later."""
    queued: Body = later(create_model)(house, body)
    result = house.results[queued["request_id"]]
    name = "model_refused" if isinstance(result, Refused) else result["model_id"]
    config = {name: body["lora_config"].get(name) for name in ("rank", "seed")}
    return {
        "model_id": name, "base_model": body["base_model"], "lora_config": config, "status": "pending",
        "request_id": queued["request_id"],
    }  # fmt: skip


def sampling_session(house: TinkerHouse, body: Body) -> Body:
    path = body.get("model_path")
    name = f"sampling_{len(house.samplers)}"
    house.samplers[name] = house.service.sampler(None if path is None else house.snapshots[path])
    return {"type": "create_sampling_session", "sampling_session_id": name}


def sample(house: TinkerHouse, body: Body) -> bytes:
    params, prompt = body["sampling_params"], ids_of(body["prompt"])
    sampler = house.samplers[body["sampling_session_id"]]
    wish = SamplingRequest(
        prompt, params["max_tokens"], params.get("temperature", 1.0), stop_ids=tuple(params.get("stop") or ())
    )
    found = sampler.sample(wish).result()
    ids, values = np.asarray(found.ids, np.int32), np.asarray(found.log_probs, np.float32)
    answer = pb.SampleResponse()
    answer.sequences.append(
        pb.SampledSequence(stop_reason=STOPS[found.ended], tokens=ids.tobytes(), logprobs=values.tobytes())
    )
    if body.get("prompt_logprobs"):
        answer.prompt_logprobs = (
            log_probs(sampler.model, prompt).detach().numpy().astype(np.float32).tobytes()
        )
    return bytes(answer.SerializeToString())


def retrieve(house: TinkerHouse, body: Body) -> Any:
    found = house.results[body["request_id"]]
    if isinstance(found, Refused):
        raise found
    return found


def optim_step(house: TinkerHouse, body: Body) -> Body:
    known(house, body)
    found = trainer.optim_step(house, body)
    return {
        "metrics": {"skyrl.ai/grad_norm": found["metrics"]["local/grad_norm"], "skyrl.ai/learning_rate": 0.0}
    }


def save_state(house: TinkerHouse, body: Body) -> Body:
    address = f"tinker://{body['model_id']}/weights/{body['path']}"
    return trainer.save_state(house, body, address)


def save_sampler(house: TinkerHouse, body: Body) -> Body:
    address = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
    return {**trainer.save_sampler(house, body, address), "sampling_session_id": None}


def capabilities(house: TinkerHouse, body: Body) -> Body:
    return {"supported_models": [{"model_name": house.model}]}


CALLS: dict[str, Call] = {
    "get_server_capabilities": capabilities,
    "client/config": lambda house, body: {"pjwt_auth_enabled": False},
    "create_session": lambda house, body: {"type": "create_session", "session_id": "session_0"},
    "session_heartbeat": lambda house, body: {"type": "session_heartbeat"},
    "create_model": made_model,
    "create_sampling_session": sampling_session,
    "forward_backward": later(passed),
    "optim_step": later(optim_step),
    "save_weights": later(save_state),
    "save_weights_for_sampler": later(save_sampler),
    "load_weights": later(trainer.load_state),
    "asample": later(sample),
    "retrieve_future": retrieve,
    "weights_info": lambda house, body: {
        "base_model": house.model, "is_lora": True, "lora_rank": MOST_RANK,
    },
}  # fmt: skip
