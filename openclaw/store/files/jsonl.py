"""Data model of an exported store: one JSON object per line, distinguished by `kind`.

The first line is of kind `store` and names the format. Lines of kind `session`, `version` and `turn` follow; a turn
contains its judgements, feedback and sample. Numbers are restored exactly.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openclaw.errors import StoreError
from openclaw.types import Judgement, SampleState, Session, Turn, WeightVersion

FORMAT = 1
SAMPLE_COLUMNS = ("reason", "created_at", "trainer", "rollout_id", "trained_version")
"""Fields of a SampleEntry that are stored in columns of the same name."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HeaderLine(_Line):
    """The first line of an export."""

    kind: Literal["store"] = "store"
    format: int = FORMAT


class SessionLine(_Line):
    """A session without its turns."""

    kind: Literal["session"] = "session"
    session: Session


class VersionLine(_Line):
    """A weight version."""

    kind: Literal["version"] = "version"
    version: WeightVersion


class JudgementEntry(_Line):
    """A judgement of a turn. `created_at`: Unix seconds, as in all entries."""

    judgement: Judgement
    created_at: float


class FeedbackEntry(_Line):
    """Feedback by a person on a turn."""

    score: float | None
    text: str
    created_at: float
    scope: str = "turn"


class WishEntry(_Line):
    """A preference of the turn's person, and the version that has learned it, if any."""

    text: str
    created_at: float
    held_by: int | None
    held_at: float | None
    details: dict[str, Any] = Field(default_factory=dict)


class TrainingEntry(_Line):
    """A version that was trained on the sample; it may have been rolled back."""

    trainer: str
    version: int
    rollout_id: int
    created_at: float


class SampleEntry(_Line):
    """The sample of a judged turn. `tokens`: values for each token from the last training step that used it."""

    state: SampleState
    reason: str | None
    reward: float | dict[str, float]
    loss_mask: list[int] | None
    metadata: dict[str, Any]
    teacher: dict[str, Any] = Field(default_factory=dict)
    created_at: float
    trainer: str | None
    rollout_id: int | None
    trained_version: int | None
    trainings: list[TrainingEntry]
    tokens: dict[str, Any] | None = None


class TurnLine(_Line):
    """A turn with all data derived from it."""

    kind: Literal["turn"] = "turn"
    turn: Turn
    judgements: list[JudgementEntry]
    feedback: list[FeedbackEntry]
    sample: SampleEntry | None
    wishes: list[WishEntry] = Field(default_factory=list)
    pictures: dict[str, str] = Field(default_factory=dict)
    """Data URLs of the pictures that no earlier line has, by the SHA-256 of their bytes."""


Line = HeaderLine | SessionLine | TurnLine | VersionLine

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def dump_line(line: Line) -> bytes:
    """Returns a line as JSON that ends with a newline."""
    return line.model_dump_json().encode() + b"\n"


def read_line(data: bytes, where: str) -> Line:
    """Returns the parsed line. Raises StoreError, which names the position `where` and the invalid field."""
    try:
        line = _LINE.validate_json(data)
    except ValidationError as error:
        raise StoreError(f"{where}: {first_problem(error)}") from error
    if isinstance(line, HeaderLine) and line.format != FORMAT:
        raise StoreError(f"{where}: unsupported format {line.format}; this program reads format {FORMAT}")
    return line


def first_problem(error: ValidationError) -> str:
    """Returns `field: reason` for the first invalid field, without its value."""
    problem = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in problem["loc"])
    return f"{field}: {problem['msg']}" if field else problem["msg"]
