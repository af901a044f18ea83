"""Hooks of a run whose updates are corrupted on purpose: RUN_DIR/spoil.json lists them, {"VERSION": KIND}.

Also ends the calling process at the points listed in RUN_DIR/die.json, one after the other: {"at": [POINT]}.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime.arguments import Arguments


def after_weights_are_written(args: Arguments, version_dir: str, rollout_engines: Any) -> None:
    import numpy
    from safetensors.numpy import load_file, save_file

    plan = Path(args.run_dir) / "spoil.json"
    number = str(int(Path(version_dir).name[1:]))
    kind = json.loads(plan.read_text()).get(number) if plan.exists() else None
    file = Path(version_dir) / "model.safetensors"
    if kind is None:
        return die(args, "good")
    if kind == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        return die(args, "spoilt")
    tensors = load_file(file)
    name = max(tensors, key=lambda name: tensors[name].size)
    spoilt = {
        "nan": numpy.full_like(tensors[name], numpy.nan),
        "exploded": tensors[name] * 1e6,
        "shape": tensors[name][:-1],
        "garbage": numpy.random.default_rng(0).standard_normal(tensors[name].shape, numpy.float32),
    }
    save_file({**tensors, name: spoilt[kind]}, file)
    die(args, "spoilt")
    return None


def gate_samples(args: Arguments, rollout_id: int, version: int) -> list[Any]:
    """Called during a gate check, and at the start of a run. With --gate-engine cpu there is a request that every
    answer follows."""
    if version > 1:
        die(args, "examined")
    if args.gate_engine != "cpu":
        return []
    about = {"gate": "wish", "key": "wish-1"}
    return [{"tokens": [5, 6, 7], "response_length": 0, "label": "", "metadata": about}]


def on_weights_rejected(args: Arguments, rollout_id: int, version: int, rejection: dict[str, Any]) -> None:
    with (Path(args.run_dir) / "rejected.jsonl").open("a") as file:
        file.write(json.dumps({"rollout_id": rollout_id, "version": version, **rejection}) + "\n")
    die(args, "rejected")


def die(args: Arguments, point: str) -> None:
    order = Path(args.run_dir) / "die.json"
    if not order.exists():
        return
    first, *others = json.loads(order.read_text())["at"]
    if first == point:
        if others:
            order.write_text(json.dumps({"at": others}))
        else:
            order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def on_weights_live(args: Arguments, rollout_id: int, version: int, checkpoint: dict[str, Any]) -> None:
    with (Path(args.run_dir) / "live.jsonl").open("a") as file:
        file.write(json.dumps({"rollout_id": rollout_id, "version": version, **checkpoint}) + "\n")
    if "undo" in checkpoint:
        die(args, "undone")
