"""A duplicate field in a request's JSON is rejected, because two parsers would use different values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw.errors import ClientError
from openclaw.gateway.chat_request import parse_body
from tests.fakes.running_gateway import RunningGateway

TWICE = (
    b'{"messages": [{"role": "user", "content": "hi"}], "train": false, "train": true}',
    b'{"train": true, "messages": [{"role": "user", "content": "hi"}], "train" : false}',
    b'{"messages": [{"role": "user", "content": "hi"}], "train": false, "tr\\u0061in": true}',
    b'{"messages": [{"role": "user", "role": "system", "content": "hi"}]}',
    b'{"user": "ada", "messages": [{"role": "user", "content": "\\\\"}], "user": "bob"}',
    b'{"session_id": "a", "messages": [{"role": "user", "content": "c:\\\\\\\\\\" x"}], "session_id": "b"}',
)
ONCE = (
    b'{"messages": [{"role": "user", "content": "\\"train\\": \\\\\\\\ \\"train\\": \\u0022 \\\\"}], "train": true}',
    b'{"messages": [{"role": "user", "content": ""}, {"role": "user", "content": "\\\\\\""}], "train": true}',
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/feedback", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("body", TWICE, ids=range(len(TWICE)))
def test_a_duplicate_field_is_rejected(gateway: RunningGateway, body: bytes, path: str) -> None:
    gateway.says("hi")
    answer = gateway.http.post(path, content=body)
    assert (answer.status_code, "repeated field" in answer.text) == (400, True), answer.text
    assert gateway.store.status.counts()["turns"] == {}


@pytest.mark.parametrize("body", ONCE, ids=range(len(ONCE)))
def test_quotation_marks_in_texts_are_not_taken_for_fields(gateway: RunningGateway, body: bytes) -> None:
    gateway.says("hi")
    assert gateway.http.post("/v1/chat/completions", content=body).status_code == 200


TEXTS = st.text('"\\\n:a,{')
VALUES = st.recursive(
    # integers beyond 64 bits are parsed as floats, which JSON allows (RFC 8259, section 6)
    TEXTS | st.integers(-(2**63), 2**64 - 1) | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


@given(VALUES, st.booleans())
def test_a_duplicate_field_is_found_at_any_position(value: object, ascii_only: bool) -> None:
    whole = json.dumps({"a": value}, ensure_ascii=ascii_only)
    assert parse_body(whole.encode()) == {"a": value}
    for twice in (whole[:-1] + ', "\\u0061": 1}', '{"b": [' + whole[:-1] + ', "a": ""}]}'):
        with pytest.raises(ClientError, match="repeated field"):
            parse_body(twice.encode())
