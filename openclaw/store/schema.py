"""The database schema. All statements and all DDL are generated from these tables.

The short, frequently used columns of a turn are in `turn`. The long ones (messages, ids, log-probs) are in
`turn_body`, so that queries that count or claim turns do not load them.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

SCHEMA_VERSION = 12
"""Current version. Each change of the schema adds 1, and an entry in `migrations.MIGRATIONS`."""

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("applied_at", Float, nullable=False),
)

session = Table(
    "session",
    metadata,
    Column("id", String, primary_key=True),
    Column("person", String),
    Column("turns", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_seen", Float, nullable=False),
    Column("ended_at", Float),
    Column("key_name", String),
    Index("session_open", "ended_at", "last_seen"),
)
"""`person` and `key_name`: those of the first turn that has them. `turns`: number of its turns."""

turn = Table(
    "turn",
    metadata,
    Column("id", String, primary_key=True),
    Column("completion_id", String, nullable=False, unique=True),
    Column("policy_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("person", String),
    Column("parent_id", String),
    Column("turn_index", Integer, nullable=False),
    Column("turn_type", String, nullable=False),
    Column("state", String, nullable=False),
    Column("state_reason", String),
    Column("finish_reason", String, nullable=False),
    Column("render_mode", String, nullable=False),
    Column("tokenizer_fingerprint", String, nullable=False),
    Column("template_fingerprint", String, nullable=False),
    Column("transcript_digest", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("answered_at", Float),
    Column("judged_at", Float),
    Column("claimed_by", String),
    Column("claimed_until", Float),
    Column("judge_attempts", Integer, nullable=False, server_default="0"),
    Column("source", String, nullable=False, server_default="gateway"),
    Column("group_id", String),
    Column("task_id", String),
    Column("key_name", String),
    Index("turn_state", "state", "state_reason", "answered_at"),
    Index("turn_session", "session_id", "turn_index"),
    Index("turn_digest", "transcript_digest", "created_at"),
    Index("turn_person", "person"),
    Index("turn_group", "group_id"),
)
"""`key_name`: name of the client's key; "" for a request without a named key; null for imported turns and for turns
stored before schema 11, see `openclaw.store.rights`."""

turn_body = Table(
    "turn_body",
    metadata,
    Column("turn_id", String, primary_key=True),
    Column("messages", LargeBinary, nullable=False),
    Column("tools", LargeBinary),
    Column("response_message", LargeBinary, nullable=False),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("completion_ids", LargeBinary, nullable=False),
    Column("completion_log_probs", LargeBinary, nullable=False),
    Column("version_spans", LargeBinary, nullable=False),
    Column("sampling", LargeBinary, nullable=False),
    Column("next_state", LargeBinary),
    Column("memory", LargeBinary),
    Column("pictures", LargeBinary),
)

picture = Table(
    "picture",
    metadata,
    Column("sha256", String, primary_key=True),
    Column("media_type", String, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""The bytes of pictures, as clients sent them."""

turn_picture = Table(
    "turn_picture",
    metadata,
    Column("turn_id", String, primary_key=True),
    Column("sha256", String, primary_key=True),
    Index("turn_picture_sha256", "sha256"),
)
"""The pictures in the prompt of each turn. `turn_body.pictures` has their places, as JSON."""

judgement = Table(
    "judgement",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("turn_id", String, nullable=False, index=True),
    Column("kind", String, nullable=False),
    Column("score", Float, nullable=False),
    Column("votes", LargeBinary, nullable=False),
    Column("hints", LargeBinary, nullable=False),
    Column("judge", String, nullable=False),
    Column("prompt", String, nullable=False),
    Column("latency", Float, nullable=False),
    Column("created_at", Float, nullable=False),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("turn_id", String, nullable=False, index=True),
    Column("score", Float),
    Column("text", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("scope", String, nullable=False, server_default="turn"),
)
"""Feedback by people. `scope`: "turn", or "session" for a turn's part of a reward of its whole session. `text` is
JSON. Judgements made from feedback override all others."""

memory = Table(
    "memory",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("person", String, nullable=False, index=True),
    Column("turn_id", String, nullable=False, index=True),
    Column("text", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("held_by", Integer),
    Column("held_at", Float),
    Column("details", LargeBinary),
    Column("key_name", String),
)
"""People's preferences, each from the judgement of a turn. `text` and `details` are JSON. `held_by`: version that
follows the preference without a reminder in the prompt. `key_name`: that of the turn."""

sample = Table(
    "sample",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("turn_id", String, nullable=False, unique=True),
    Column("state", String, nullable=False),
    Column("reason", String),
    Column("reward", LargeBinary, nullable=False),
    Column("loss_mask", LargeBinary),
    Column("extra", LargeBinary, nullable=False),
    Column("teacher", LargeBinary),
    Column("created_at", Float, nullable=False),
    Column("trainer", String),
    Column("rollout_id", Integer),
    Column("trained_version", Integer),
    Index("sample_state", "state", "reason", "created_at"),
    Index("sample_oldest", "state", "created_at", "id"),
    Index("sample_lease", "trainer", "rollout_id", "state"),
)

training = Table(
    "training",
    metadata,
    Column("sample_id", Integer, primary_key=True),
    Column("trainer", String, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("rollout_id", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("training_version", "trainer", "version"),
)
"""Versions that were trained on each sample, including rolled-back ones. A rollback uses them to find the samples that
are ready again."""

token_record = Table(
    "token_record",
    metadata,
    Column("sample_id", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Values for every token of a sample, from the last training step that used it."""

dream = Table(
    "dream",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trainer", String, nullable=False),
    Column("model", String, nullable=False),
    Column("rollout_id", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("item", String, nullable=False),
    Column("theme", String, nullable=False),
    Column("person", String),
    Column("wish", LargeBinary),
    Column("turn_id", String, index=True),
    Column("other_turn_id", String, index=True),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("taught_ids", LargeBinary, nullable=False),
    Column("completion_ids", LargeBinary, nullable=False),
    Column("gain", Float),
    Column("version", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("dream_rollout", "trainer", "model", "kind", "rollout_id"),
)
"""Answers that the model sampled for dreaming, see `openclaw.store.dreams`. `turn_id` and `other_turn_id`: turns after
which the preference was stated; the row is deleted with either of them."""

weight_version = Table(
    "weight_version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trainer", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("parent", Integer),
    Column("rollout_id", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("path", String),
    Column("checksum", String),
    Column("created_at", Float, nullable=False),
    Column("activated_at", Float),
    Column("details", LargeBinary),
    UniqueConstraint("trainer", "version", name="weight_version_number"),
    Index("weight_version_status", "status", "activated_at"),
)
"""`details` is JSON: measurements of the gate, and the reason of a rejection or a rollback."""
