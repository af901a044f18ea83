#!/usr/bin/env bash
# A run whose agent is a third-party harness (smolagents, from its package) behind the gateway: sessions rewarded, samples
# trained in the ids of the store, versions live. On a CPU; two or three minutes. Usage: bash lab/claw_lab/long/gateway_harness.sh
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt"
set_python_path
folder=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl/smolagents-1.26.0
[ -e "$folder/done" ] || { "$PY" -m pip install -q --no-deps --target "$folder" smolagents==1.26.0 pillow==13.0.0 python-dotenv==1.2.4 && touch "$folder/done"; }
export PYTHONPATH=$PYTHONPATH:$folder
exec "$PY" -m claw_lab.long.gateway_harness
