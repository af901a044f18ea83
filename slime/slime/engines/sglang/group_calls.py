"""SGLang's HTTP calls to set up and use a group for weights."""

from __future__ import annotations

from typing import Any

from slime.engines.protocol import EngineControlError, HttpCall
from slime.engines.sglang.buckets import Bucket
from slime.engines.sglang.sender import Meeting


def engine_ranks(call: HttpCall) -> tuple[int, str]:
    """Returns the engine's number of ranks (GPUs or CPU processes), and its device.

    Raises:
        EngineControlError: SGLang's weight groups do not support its parallelism.
    """
    info = call("GET", "/server_info")
    for name in ("pp_size", "dp_size"):
        if int(info.get(name, 1)) > 1:
            raise EngineControlError(
                f"SGLang does not support weight broadcast with {name} {info[name]}; use "
                "--update-weight-transport disk"
            )
    return int(info.get("tp_size", 1)), str(info.get("device", "cuda"))


def join_order(meeting: Meeting, world_size: int, group: str, backend: str) -> dict[str, Any]:
    """Returns the request that makes an engine join a group; its ranks come after rank 0."""
    return {
        "master_address": meeting.host,
        "master_port": meeting.port,
        "rank_offset": 1,
        "world_size": world_size,
        "group_name": group,
        "backend": backend,
    }


def begin(call: HttpCall) -> None:
    """Opens the update session, after closing one that a killed driver left open."""
    try:
        call("POST", "/begin_weight_update", {})
    except EngineControlError as error:
        if error.status is None:
            raise
        call("POST", "/end_weight_update", {})
        call("POST", "/begin_weight_update", {})


def relabel(call: HttpCall, label: str) -> None:
    call("POST", "/update_weight_version", {"new_version": label, "abort_all_requests": False})


def receive_order(bucket: Bucket, group: str, flush: bool) -> dict[str, Any]:
    """Returns the request that makes an engine receive a bucket.

    `flush`: also flush the cache, with the last bucket.
    """
    return {
        "names": [entry.name for entry in bucket.entries],
        "dtypes": [entry.dtype for entry in bucket.entries],
        "shapes": [list(entry.shape) for entry in bucket.entries],
        "group_name": group,
        "load_format": "flattened_bucket",
        "flush_cache": flush,
        "abort_all_requests": False,
    }
