#!/usr/bin/env bash
# Histories of other programs (OpenClaw, Claude Code, Hermes, ATIF) are imported into a fresh run, which learns from them
# before anybody has talked, off-policy and under the gate. On a CPU; about two minutes.
# Usage: bash lab/claw_lab/long/imports.sh
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt"
exec "$PY" -m claw_lab.long.imports
