"""`ifbench`: checks whether a response follows all of its prompt's instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slime.errors import RewardError
from slime.rollout.rm_hub.answers import after_thinking
from slime.rollout.rm_hub.instructions import CHECKS


def ifbench_reward(response: str, metadata: Mapping[str, Any]) -> float:
    """Returns 1.0 if the response after its reasoning follows every instruction, else 0.0.

    `metadata["instruction_id_list"]` lists them, `metadata["kwargs"]` has the arguments of each, as in the
    data sets IFEval and IFBench.

    Raises:
        RewardError: instructions or their arguments are missing, or an instruction is not supported.
    """
    names = metadata.get("instruction_id_list")
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise RewardError("ifbench needs metadata.instruction_id_list")
    parameters = metadata.get("kwargs") or [{}] * len(names)
    if len(parameters) != len(names):
        raise RewardError(f"metadata.kwargs has {len(parameters)} entries for {len(names)} instructions")
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise RewardError(
            f"ifbench does not support {', '.join(unknown)}, which text alone does not decide; "
            f"remove such prompts, or use --custom-rm-path. Supported: {', '.join(CHECKS)}"
        )
    final = (after_thinking(response) or response).strip()
    return float(bool(final) and all(_follows(final, *pair) for pair in zip(names, parameters, strict=True)))


def _follows(text: str, name: str, parameters: Mapping[str, object] | None) -> bool:
    known = {key: value for key, value in (parameters or {}).items() if value is not None}
    try:
        return CHECKS[name](text, known)
    except KeyError as error:
        raise RewardError(f"instruction {name}: argument {error} is missing") from error
