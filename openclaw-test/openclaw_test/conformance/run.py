"""Runs the checks of every client against one URL."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from openclaw_test.conformance import curl, node, python_clients
from openclaw_test.conformance.target import Check, NotInstalledError, Target

CLIENTS = {
    "openai-python": python_clients.openai_checks,
    "langchain": python_clients.langchain_checks,
    "anthropic": python_clients.anthropic_checks,
    "curl": curl.checks,
    "openai-node": node.checks,
}
CHECKS = ("answer", "stream", "tool", "streamed-tool", "wrong-field", "other-model", "wrong-key")
"""Checks that every client must pass."""


@dataclass(frozen=True)
class Outcome:
    """Result of one check with one client. `error` is empty if it passed; `skipped`: the reason why it was not
    run."""

    client: str
    check: str
    error: str = ""
    skipped: str = ""


def run(target: Target, clients: Sequence[str]) -> Iterator[Outcome]:
    """Yields the outcomes one by one."""
    for client in clients:
        try:
            checks = CLIENTS[client](target)
        except NotInstalledError as error:
            yield Outcome(client, "all", skipped=str(error))
            continue
        for name in CHECKS:
            if name == "wrong-key" and not target.key:
                yield Outcome(client, name, skipped="the server has no key")
            else:
                yield Outcome(client, name, _error(checks[name]))


def _error(check: Check) -> str:
    try:
        check()
    except Exception as error:  # any exception of a client library is a result
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--url", required=True, help="http://HOST:PORT, without /v1")
    parser.add_argument("--api-key", default=os.environ.get("SGLANG_API_KEY", ""))
    parser.add_argument("--model", help="model name (default: the first that the server lists)")
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    args = parser.parse_args(argv)
    url = args.url.rstrip("/").removesuffix("/v1")
    model = args.model or _first_model(url, args.api_key)
    failed = 0
    for outcome in run(Target(url, args.api_key, model), args.clients):
        failed += bool(outcome.error)
        word = "SKIPPED" if outcome.skipped else "FAILED" if outcome.error else "ok"
        reason = outcome.skipped or outcome.error
        print(f"{word:8} {outcome.client:14} {outcome.check:14} {reason}".rstrip(), flush=True)
    print(f"{failed} failed" if failed else "all that ran passed", file=sys.stderr)
    return 1 if failed else 0


def _first_model(url: str, key: str) -> str:
    answer = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}, trust_env=False)
    answer.raise_for_status()
    return str(answer.json()["data"][0]["id"])
