#!/usr/bin/env bash
# On-policy distillation, on rented GPUs: serves on http://127.0.0.1:30000 (or PROXY_HOST, PROXY_PORT) and trains at Tinker.
#   TINKER_API_KEY=tml-... bash openclaw-tinker/run_tinker_opd.sh --model-path models/tokenizer
# Flags are those of run.py; --dry-run starts nothing.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
check_first rented_run.before openclaw_tinker.settings:TINKER --method opd "$@"
ensure_env "$ROOT/requirements.txt" "$ROOT/openclaw-tinker/requirements.txt"
ensure_for "$@" ${WANDB_PROJECT:+--use-wandb}
exec "$PY" "$ROOT/openclaw-tinker/run.py" --method opd "$@"
