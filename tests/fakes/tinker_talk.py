"""A conversation with a Tinker server through the SDK, and the shapes of all its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as pb

from openclaw_tinker.service import TinkerService
from slime.errors import ConfigError
from slime.rented.service import AdamStep, SamplingRequest, ServiceSettings, TrainingSequence
from tests.fakes.served import served

IDS = [5, 9, 13, 21, 3]
SEQUENCE = TrainingSequence(IDS, [-1.0] * 4, [0.0, 1.0, 1.0, -1.0])
ADAM = AdamStep(1e-3, 0.9, 0.98, 1e-8, 0.0, 1.0)
BESIDE = ("session_heartbeat", "telemetry", "client/dynamic_config")
"""Sent by a timer, or as flags of the server's owner."""
PROTO = "application/x-protobuf"


def talk(url: str, model: str) -> None:
    """Makes all requests that our service sends to such a server, and one that it rejects."""
    service = TinkerService(ServiceSettings(model, url, rank=8))
    service.check()
    base, trained = service.sampler(None), service.new()
    base.sample(SamplingRequest(IDS, most=3, temperature=0.5, stop_ids=(2,), seed=1)).result()
    base.log_probs(IDS).result()
    trained.forward([SEQUENCE, TrainingSequence(IDS[:3])]).result()
    for loss in ("importance_sampling", "ppo", "cispo"):
        trained.policy_gradient(loss, (0.8, 1.28), [SEQUENCE]).result()
    trained.step(ADAM).result()
    service.sampler(trained.save_sampler("v000001").result()).sample(SamplingRequest(IDS, most=1)).result()
    service.resume(trained.save_state("step_000001").result()).forward([SEQUENCE]).result()
    try:
        TinkerService(ServiceSettings(model, url, rank=9)).new()
    except ConfigError:
        return
    raise AssertionError("a rank that the server does not have was taken")


def recorded(url: str, model: str, say: Callable[[str, str], None] = talk) -> list[list[Any]]:
    """Returns [call, status, shape of the answer] for each request to the server at `url`."""
    found: list[list[Any]] = []
    calls: dict[str, str] = {}

    async def forward(request: Request) -> Response:
        call = request.path_params["call"]
        headers = {
            k: v for k, v in request.headers.items() if k not in ("host", "content-length", "connection")
        }
        body = await request.body()
        async with httpx.AsyncClient(timeout=300) as http:
            answer = await http.request(
                request.method,
                f"{url}/api/v1/{call}",
                content=body,
                headers=headers | {"accept-encoding": "identity"},
            )
        kind = answer.headers.get("content-type", "")
        if call not in BESIDE and answer.status_code != 408:
            about = call
            if call == "retrieve_future":
                about = f"{call} of {calls[str((await request.json())['request_id'])]}"
            elif "json" in kind and "request_id" in answer.text:
                calls[str(answer.json()["request_id"])] = call
            shown = proto(about, answer.content) if kind.startswith(PROTO) else shape(answer.json(), model)
            found.append([about, answer.status_code, shown])
        return Response(answer.content, answer.status_code, media_type=kind)

    app = Starlette(routes=[Route("/api/v1/{call:path}", forward, methods=["GET", "POST"])])
    with served(app) as proxy:
        say(proxy, model)
    return found


def shape(value: Any, model: str) -> Any:
    """Replaces values by their types; error texts are kept, without the model's name."""
    if isinstance(value, dict):
        return {
            name: refusal(one, model) if name == "detail" else shape(one, model)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [shape(value[0], model)] if value else []
    return {bool: "bool", int: "number", float: "number", str: "text", type(None): None}[type(value)]


def refusal(text: Any, model: str) -> str:
    return str(text).replace(model, "MODEL")


def proto(about: str, content: bytes) -> dict[str, Any]:
    """Returns the content of such an answer, as counts."""
    if about.endswith("asample"):
        sampled = pb.SampleResponse.FromString(content)
        [one] = sampled.sequences
        same = len(one.tokens) == len(one.logprobs)
        prompt = len(np.frombuffer(sampled.prompt_logprobs, np.float32))
        return {"a log-prob for each token": same, "prompt_logprobs": prompt}
    passed = pb.ForwardBackwardOutput.FromString(content)
    [record] = passed.loss_fn_outputs
    ends = np.frombuffer(record.fields["logprobs"].offsets, np.int64) // 4
    return {"num_datums": record.num_datums, "logprobs end at": ends.tolist()}
