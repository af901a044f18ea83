"""Flags of terminal runs; the module of the generate function carries them to the command line."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass(frozen=True)
class TerminalFlags:
    """terminal: episodes in shells."""

    parallel_envs: int = flag(32, "episodes at a time", env=("PARALLEL_ENVS",), least=1)
    max_steps: int = flag(20, "turns of the model in one episode", env=("MAX_STEPS",), least=1)
    tasks_dir: str | None = flag(
        None, "folder that task_path of the rows begins at; no path leads out of it", env=("DATASET_DIR",)
    )
    env_server_url: str | None = flag(
        None,
        "address of a pool of terminals, or of a router over several; boxes then run there",
        env=("ENV_SERVER_URL",),
    )
    env_server_key: str | None = flag(None, "key of that pool", env=("ENV_SERVER_KEY",))
    terminal_system_prompt: bool = flag(
        True,
        "begin with the system prompt; otherwise with the instruction alone, for a model that knows nothing else",
    )
    tool_output_chars: int = flag(4096, "characters that one tool call shows at most", least=200)


FLAGS = (TerminalFlags,)
