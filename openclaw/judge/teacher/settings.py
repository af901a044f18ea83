"""Flags and variables of a teacher on an inference engine; a teacher in the trainer needs none of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag
from openclaw.errors import ConfigError
from openclaw.judge.settings import JudgeSettings
from openclaw.methods.method import Needs


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """The teacher's engines. Raises ConfigError for a number out of range."""

    opd_teacher_url: tuple[str, ...] = flag(
        (),
        "Engine that runs the teacher (default: the judge's); repeatable.",
        env=("OPENCLAW_OPD_TEACHER_URL",),
        unit="URL",
    )
    opd_teacher_model_path: str | None = flag(
        None,
        "Folder of the teacher's tokenizer (default: the judge model's).",
        env=("OPENCLAW_OPD_TEACHER_MODEL_PATH",),
        unit="path",
    )
    opd_teacher_lp_max_concurrency: int = flag(
        3,
        "Concurrent requests of one judge worker to the teacher.",
        env=("OPENCLAW_OPD_TEACHER_LP_MAX_CONCURRENCY",),
        least=1,
    )

    def __post_init__(self) -> None:
        check(self)


def add_flags(parser: argparse._ActionsContainer) -> None:
    """Adds the teacher's flags to any parser."""
    command_line.add_flags(parser, TeacherSettings)


def load_settings(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> TeacherSettings:
    """Returns the settings of a parsed command line (see `add_flags`). Raises ConfigError."""
    return command_line.load(TeacherSettings, vars(args), environ)


def as_flags(args: argparse.Namespace) -> list[str]:
    """Returns command-line arguments for the values that were set."""
    return command_line.as_flags(TeacherSettings, vars(args))


def is_asked(needs: Needs, source: str) -> bool:
    """Returns whether the teacher's log-probs come from an engine. Raises ConfigError for an unknown source."""
    if source not in ("trainer", "inference"):
        raise ConfigError(f"--teacher-source must be trainer or inference, got {source}")
    return source == "inference" and needs.teacher != "none"


def teacher_engines(teacher: TeacherSettings, judge: JudgeSettings) -> tuple[tuple[str, ...], Path]:
    """Returns the teacher's addresses, and the folder of its tokenizer. Raises ConfigError if neither is set."""
    urls = teacher.opd_teacher_url or judge.judge_engine_url
    folder = teacher.opd_teacher_model_path or judge.prm_model_path
    if not urls or not folder:
        raise ConfigError(
            "this method learns from a teacher on an inference engine: give --opd-teacher-url and "
            "--opd-teacher-model-path (or the judge's --judge-engine-url and --prm-model-path), or take the "
            "teacher in the trainer with --teacher-source trainer"
        )
    return urls, Path(folder).expanduser()
