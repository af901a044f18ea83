"""A fake of Fireworks AI over HTTP: control plane, trainer and deployment, with a real tiny model in this process.

Paths and fields are those that fireworks-ai 1.2.28 uses. `FireworksHouse` records the requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slime.rented.service import SamplingRequest, ServiceSettings
from tests.fakes import trainer
from tests.fakes.local_service import LocalService, log_probs
from tests.fakes.trainer import Body, TrainerHouse, later

ACCOUNT, KEY = "accounts/me", "fw_secret"
SHAPE = "accounts/fireworks/trainingShapes/tiny"


@dataclass
class FireworksHouse(TrainerHouse):
    """State of the fake in addition to a trainer.

    Attributes:
        live: address of the served weights; None: the base model. target: address of the weights that are loading.
            loading: number of further status requests answered with "loading"; meanwhile, requests get 425.
    """

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    live: str | None = None
    target: str | None = None
    loading: int = 0


def move_in(model: str) -> FireworksHouse:
    return FireworksHouse(LocalService(ServiceSettings(model)))


def app(house: FireworksHouse) -> Starlette:
    job = "/training/v1/rlorTrainerJobs/me/{job}/api/v1"
    asked: dict[str, Callable[[FireworksHouse, dict[str, Any]], dict[str, Any]]] = {
        "create_session": lambda house, body: {"type": "create_session", "session_id": "s"},
        "session_heartbeat": lambda house, body: {"type": "session_heartbeat"},
        "telemetry": lambda house, body: {"status": "accepted"},
        "retrieve_future": lambda house, body: house.results[body["request_id"]],
        "create_model": later(trainer.create_model),
        "forward": later(forward),
        "forward_backward": later(forward_backward),
        "optim_step": later(trainer.optim_step),
        "save_weights": later(save_weights),
        "save_weights_for_sampler": later(save_for_sampler),
        "load_weights": later(trainer.load_state),
    }

    async def train(request: Request) -> Response:
        name = request.path_params["call"]
        house.asked.append(name)
        return JSONResponse(asked[name](house, await request.json()))

    routes = [
        Route(job + "/healthz", lambda request: JSONResponse({"status": "ok"})),
        Route(job + "/{call}", train, methods=["POST"]),
    ]
    for path, answer, methods in CONTROL:
        routes.append(Route(path, _controlled(house, answer), methods=methods))
    return Starlette(routes=routes)


def _controlled(house: FireworksHouse, answer: Callable[[FireworksHouse, Request, Any], Response]) -> Any:
    async def handle(request: Request) -> Response:
        house.asked.append(f"{request.method} {request.url.path}")
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix(
            "Bearer "
        )
        if key != KEY:
            return JSONResponse({"error": {"message": "invalid key"}}, 401)
        body = await request.body()
        return answer(house, request, json.loads(body) if body else {})

    return handle


def accounts(house: FireworksHouse, request: Request, body: Body) -> Response:
    return JSONResponse({"accounts": [{"name": ACCOUNT}]})


def shapes(house: FireworksHouse, request: Request, body: Body) -> Response:
    if request.path_params["shape"] != "tiny":
        return JSONResponse({"trainingShapeVersions": []})
    snapshot = {
        "trainerImageTag": "1", "maxSupportedContextLength": 4096, "nodeCount": 1, "deploymentImageTag": "1",
        "deploymentShapeVersion": "accounts/fireworks/deploymentShapes/tiny/versions/1", "acceleratorType": "CPU",
        "acceleratorCount": 1, "baseModelWeightPrecision": "BF16", "trainerMode": "LORA_TRAINER",
    }  # fmt: skip
    version = {"name": f"{SHAPE}/versions/1", "snapshot": snapshot, "latestValidated": True}
    return JSONResponse({"trainingShapeVersions": [version]})


def create_job(house: FireworksHouse, request: Request, body: Body) -> Response:
    name = request.query_params["rlorTrainerJobId"]
    house.options["trainer"] = body
    house.jobs[name] = {"name": f"{ACCOUNT}/rlorTrainerJobs/{name}", "state": "JOB_STATE_RUNNING"}
    return JSONResponse(house.jobs[name])


def get_job(house: FireworksHouse, request: Request, body: Body) -> Response:
    found = house.jobs.get(request.path_params["job"])
    return JSONResponse(found) if found else JSONResponse({"error": {"message": "no such job"}}, 404)


def resume_job(house: FireworksHouse, request: Request, body: Body) -> Response:
    found = house.jobs[request.path_params["job"].removesuffix(":resume")]
    found["state"] = "JOB_STATE_RUNNING"
    return JSONResponse(found)


def delete_job(house: FireworksHouse, request: Request, body: Body) -> Response:
    house.jobs.pop(request.path_params["job"], None)
    return JSONResponse({})


def create_deployment(house: FireworksHouse, request: Request, body: Body) -> Response:
    name = request.query_params["deploymentId"]
    house.options["deployment"] = body
    house.deployments[name] = {"name": f"{ACCOUNT}/deployments/{name}", "state": "READY", **body}
    return JSONResponse(house.deployments[name])


def get_deployment(house: FireworksHouse, request: Request, body: Body) -> Response:
    found = house.deployments.get(request.path_params["name"])
    return JSONResponse(found) if found else JSONResponse({"error": {"message": "not found"}}, 404)


def change_deployment(house: FireworksHouse, request: Request, body: Body) -> Response:
    house.deployments[request.path_params["name"]] |= body
    return get_deployment(house, request, body)


def hot_load(house: FireworksHouse, request: Request, body: Body) -> Response:
    if request.method == "POST":
        if body["identity"] not in house.snapshots:
            return JSONResponse({"error": {"message": f"no snapshot {body['identity']}"}}, 400)
        house.target, house.loading = body["identity"], 2
        return JSONResponse({})
    if house.target is not None:
        house.loading -= 1
        if house.loading <= 0:
            house.live, house.target = house.target, None
    stage = {"stage": "loading" if house.target else "done", "target_snapshot_identity": house.target}
    replica = {
        "current_snapshot_identity": house.live,
        "readiness": house.target is None,
        "loading_state": stage,
    }
    return JSONResponse({"replicas": [replica]})


def complete(house: FireworksHouse, request: Request, body: Body) -> Response:
    """Streams one event, as `DeploymentSampler` reads it."""
    house.options["completion"] = body
    if house.target is not None:
        return JSONResponse({"error": {"message": "hot loading"}}, 425)
    sampler = house.service.sampler(None if house.live is None else house.snapshots[house.live])
    prompt = body["prompt"]
    found = sampler.sample(SamplingRequest(prompt, body["max_tokens"], body["temperature"])).result()
    values = [None, *log_probs(sampler.model, prompt).tolist()] if body.get("echo") else []
    ids = [*(prompt if body.get("echo") else []), *found.ids]
    content = [
        {"logprob": x, "sampling_logprob": None if x is None else 2 * x} for x in [*values, *found.log_probs]
    ]
    if content and content[0]["logprob"] is None:
        content[0] = {"logprob": 0.0, "sampling_logprob": 0.0}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": {"content": content}}
    choice["raw_output"] = {"completion_token_ids": ids, "prompt_token_ids": prompt}
    event = json.dumps({"id": "cmpl", "choices": [choice], "usage": {"completion_tokens": len(found.ids)}})
    return Response(f"data: {event}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


CONTROL: list[tuple[str, Callable[[FireworksHouse, Request, Any], Response], list[str]]] = [
    ("/v1/accounts", accounts, ["GET"]),
    ("/v1/accounts/fireworks/trainingShapes/{shape}/versions", shapes, ["GET"]),
    ("/v1/accounts/me/rlorTrainerJobs", create_job, ["POST"]),
    ("/v1/accounts/me/rlorTrainerJobs/{job}", get_job, ["GET"]),
    ("/v1/accounts/me/rlorTrainerJobs/{job}", resume_job, ["POST"]),
    ("/v1/accounts/me/rlorTrainerJobs/{job}", delete_job, ["DELETE"]),
    ("/v1/accounts/me/deployments", create_deployment, ["POST"]),
    ("/v1/accounts/me/deployments/{name}", get_deployment, ["GET"]),
    ("/v1/accounts/me/deployments/{name}", change_deployment, ["PATCH"]),
    ("/hot_load/v1/models/hot_load", hot_load, ["GET", "POST"]),
    ("/inference/v1/completions", complete, ["POST"]),
]


def outputs(rows: list[list[float]]) -> dict[str, Any]:
    tensors = [{"logprobs": {"data": row, "dtype": "float32", "shape": [len(row)]}} for row in rows]
    return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": tensors, "metrics": {}}


def forward(house: FireworksHouse, body: dict[str, Any]) -> dict[str, Any]:
    return outputs(trainer.forward(house, body["forward_input"], body["model_id"]))


def forward_backward(house: FireworksHouse, body: dict[str, Any]) -> dict[str, Any]:
    return outputs(trainer.forward_backward(house, body["forward_backward_input"], body["model_id"]))


def save_weights(house: FireworksHouse, body: dict[str, Any]) -> dict[str, Any]:
    return trainer.save_state(house, body, f"step-{len(house.states) + 1}")


def save_for_sampler(house: FireworksHouse, body: dict[str, Any]) -> dict[str, Any]:
    return trainer.save_sampler(house, body, body["path"])
