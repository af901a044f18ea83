#!/usr/bin/env bash
# Binary RL, on rented GPUs: serves on http://127.0.0.1:30000 (or PROXY_HOST, SERVER_PORT) and trains at Fireworks AI.
#   FIREWORKS_API_KEY=fw_... bash openclaw-fireworks/run_fireworks_rl.sh --model-path models/tokenizer
# Flags are those of run_openclaw_fireworks.py; --dry-run rents and starts nothing.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
check_first rented_run.before openclaw_fireworks.settings:FIREWORKS --method rl "$@"
ensure_env "$ROOT/requirements.txt" "$ROOT/openclaw-fireworks/requirements.txt"
ensure_for "$@" ${WANDB_PROJECT:+--use-wandb}
exec "$PY" "$ROOT/openclaw-fireworks/run_openclaw_fireworks.py" --method rl "$@"
