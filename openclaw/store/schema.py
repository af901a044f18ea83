"""The tables, declared once. Every statement and all DDL is generated from them.

A turn's small, often used columns are in `turn`; its long ones (messages, ids, log-probs) in `turn_body`, so that
counting and claiming never load them.
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

SCHEMA_VERSION = 11
"""Must be increased by one with every entry of migrations.MIGRATIONS."""

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
"""`person` and `key_name` are those of its first turns."""

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
"""`key_name`: name of the client's key, "" for a request without a named key, null for imported turns and those from
before schema 11; see `openclaw.store.rights`."""

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
)

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
"""People's feedback on turns, and turns' parts of feedback on a whole session (`scope`). Judgements made from it
override all others; `text` is JSON."""

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
"""People's preferences, each from the judgement of a turn. `text` and `details` are JSON; `held_by` is the version
that follows the preference without a reminder; `key_name` is that of the turn."""

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
"""The versions that trained each sample, including rolled-back ones; they determine which samples are ready again."""

token_record = Table(
    "token_record",
    metadata,
    Column("sample_id", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Values of the last training step for every token of a sample."""

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
"""Answers that the model sampled for dreaming, see `openclaw.store.dreams`. Dreams of a preference list the turns
after which it was written, and are deleted with any of them."""

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
"""`details` is JSON: the gate's measurements, the reason of a rejection or of undoing."""
