"""The runtime's errors, one class a boundary: the fault, its place and the remedy.

An invalid request or turn is data: it is answered or counted, and serving continues. An invalid configuration is
rejected before anything starts.
"""

from __future__ import annotations

from typing import Any

from claw_base.errors import ClawError, ConfigError

__all__ = [
    "ClawError",
    "ClientError",
    "ConfigError",
    "EngineError",
    "HintError",
    "JudgeError",
    "StoreAway",
    "StoreError",
    "StoreUnavailable",
]


class StoreError(ClawError):
    """The rollout store cannot be used, or a change violates its state machines. `remedy`: advice without
    the store's address or content; may be empty."""

    remedy: str = ""


class StoreUnavailable(StoreError):
    """The store's database is locked, full, unreachable or outdated: the call is valid and may succeed later."""


class StoreAway(StoreUnavailable):
    """The store's database server does not answer: it is stopped or starting."""


class JudgeError(ClawError):
    """A judge is unreachable, slow, or returned an invalid answer."""


class HintError(ClawError):
    """A hint that cannot be inserted into its turn's prompt."""


class EngineError(ClawError):
    """An inference engine cannot be reached, or disconnected."""


class ClientError(ClawError):
    """A request that cannot be served; it becomes an OpenAI error object.

    Args:
        message: the fault and its remedy.
        param: the field of the request that is wrong, as OpenAI names it; None for the request as a whole.
        code: machine-readable reason.
        status: HTTP status.
        kind: OpenAI's error type.
        retry_after: seconds after which the same request may be served; None when that is not known.
    """

    def __init__(
        self,
        message: str,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        kind: str = "invalid_request_error",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status
        self.kind = kind
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Returns the OpenAI error object."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    def anthropic_body(self) -> dict[str, Any]:
        """Returns Anthropic's error object."""
        kind = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(self.status, kind)
        return {
            "type": "error",
            "error": {"type": kind, "message": self.anthropic_message()},
            "request_id": None,
        }

    def anthropic_message(self) -> str:
        """Returns the message that clients of Anthropic's API expect."""
        return str(self)

    def body_for(self, path: str) -> dict[str, Any]:
        """Returns the error object in the format of the API that the path belongs to."""
        return self.anthropic_body() if path.startswith(ANTHROPIC_ROUTES) else self.body()


ANTHROPIC_ROUTES = "/v1/messages"
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class PromptTooLongError(ClientError):
    """A prompt that leaves no room for an answer. Its message is that of OpenAI's and vLLM's APIs (Anthropic's in
    `anthropic_message`): agents recognise it and shorten the conversation. Some look for the code in it.

    Args:
        tokens: of the prompt; a lower bound if `characters` is given, because a much too long text is not tokenized
            completely.
        context_length: tokens, prompt and answer together.
    """

    def __init__(self, tokens: int, context_length: int, characters: int | None = None) -> None:
        count = (
            f"{tokens} tokens"
            if characters is None
            else f"at least {tokens} tokens ({characters} characters)"
        )
        super().__init__(
            f"This model's maximum context length is {context_length} tokens. However, your messages resulted in "
            f"{count}. Please reduce the length of the messages (context_length_exceeded).",
            "messages",
            "context_length_exceeded",
        )
        self.tokens, self.context_length = tokens, context_length

    def anthropic_message(self) -> str:
        return f"prompt is too long: {self.tokens} tokens > {self.context_length} maximum"
