"""A plan as text for people and as plain data for programs."""

from __future__ import annotations

from typing import Any

from slime.plan.hardware import GIB
from slime.plan.memory import engine_parts, host_bytes, kv_tokens, trainer_parts
from slime.plan.placement_plan import MFU, MemoryPlan, on_hosts, problems, step_seconds


def as_data(plan: MemoryPlan, price: float | None = None) -> dict[str, Any]:
    """Returns all computed values: bytes, seconds, and dollars if `price` (of a GPU hour) is given."""
    trainer, seconds = plan.trainer, step_seconds(plan.trainer, plan.batch, plan.gpu)
    data: dict[str, Any] = {
        "model": trainer.shape.name,
        "parameters": trainer.shape.parameters,
        "active_parameters": trainer.shape.active,
        "gpus": plan.gpus,
        "gpu": plan.gpu.name,
        "gpu_bytes": plan.gpu.memory * GIB,
        "split": plan.arithmetic(),
        "trainer": trainer_parts(trainer),
        "host_bytes_a_rank": host_bytes(trainer),
        "host": on_hosts(plan)[0],
        "disk": on_hosts(plan)[1],
        "carrying": plan.carrying,
        "servers": [
            {
                "role": one.role,
                "model": one.engine.shape.name,
                "engines": one.count,
                "gpus_an_engine": one.engine.gpus,
                **engine_parts(one.engine, plan.gpu),
                "kv_bytes_a_token": one.engine.shape.kv_bytes,
                "tokens": kv_tokens(one.engine, plan.gpu),
                "context": one.engine.context,
            }
            for one in plan.servers
        ],
        "step_seconds": seconds,
        "problems": problems(plan),
    }
    if price is not None:
        data["step_dollars"] = seconds / 3600 * plan.used * price
    return data


def as_text(plan: MemoryPlan, price: float | None = None) -> str:
    """Returns the same as text for a terminal."""
    data = as_data(plan, price)
    gib = {name: size / GIB for name, size in data["trainer"].items()}
    lines = [
        f"model    {data['model']}: {data['parameters'] / 1e9:.2f} billion parameters{_active(data)}",
        f"split    {data['split']}, {plan.gpu.name} with {plan.gpu.memory:g} GiB each",
        f"trainer  {sum(gib.values()):.1f} GiB a GPU: " + ", ".join(f"{n} {v:.1f}" for n, v in gib.items()),
    ]
    if data["host_bytes_a_rank"]:
        lines.append(f"         {data['host_bytes_a_rank'] / GIB:.1f} GiB of CPU memory a rank (offloaded)")
    for one in data["servers"]:
        whole = one["tokens"] / max(one["context"], 1)
        lines.append(
            f"{one['role']:8} {one['engines']} x {one['gpus_an_engine']} GPU, {one['model']}: weights "
            f"{one['weights'] / GIB:.1f}, keys and values {one['keys and values'] / GIB:.1f} GiB a GPU = "
            f"{one['tokens']:,} tokens an engine, {whole:.1f} requests of {one['context']:,}"
        )
    if plan.carrying:
        lines.append(
            f"updates  {plan.carrying / GIB:.1f} GiB on each GPU of the policy, for the process that sends it weights"
        )
    for name, where in (("host", "memory of the machines"), ("disk", "disk")):
        parts = ", ".join(f"{part} {size / GIB:.0f}" for part, size in data[name].items())
        lines.append(f"{name:8} {sum(data[name].values()) / GIB:.0f} GiB of {where}: {parts}")
    batch = plan.batch
    cost = f" = {data['step_dollars']:.3f} dollars of all GPUs" if price is not None else ""
    lines.append(
        f"step     {batch.samples} samples of {batch.length:,} tokens: about {data['step_seconds']:.0f} s{cost} "
        f"at {MFU:.0%} of the peak"
    )
    lines += [f"problem  {one}" for one in data["problems"]] or ["fits     every part, by estimate"]
    return "\n".join(lines)


def _active(data: dict[str, Any]) -> str:
    """Returns the number of parameters that a mixture of experts uses for a token, as text."""
    active, whole = data["active_parameters"], data["parameters"]
    return "" if active == whole else f", {active / 1e9:.2f} billion of them for each token"
