#!/usr/bin/env bash
# Sets up what is missing and runs every test on a CPU.   bash run_tests.sh [pytest arguments]
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=slime/scripts/env.sh
source "$ROOT/slime/scripts/env.sh"
cd "$ROOT"
ensure_env "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt"
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0
exec "$PY" -m pytest --durations=15 "$@"
