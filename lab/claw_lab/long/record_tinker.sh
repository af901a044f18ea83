#!/usr/bin/env bash
# Records what a real local server of Tinker's protocol answers (skyrl 0.4.0): shapes and refusals, in tests/openclaw_tinker/recorded.json.
#   bash lab/claw_lab/long/record_tinker.sh [FOLDER]     default: a temporary folder; installs as run_tinker.sh
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck disable=SC2034 # read by prepare_tinker
FOLDER=${1:-$(mktemp -d)}
# shellcheck source=tinker_server.sh
source "$ROOT/lab/claw_lab/long/tinker_server.sh"
prepare_tinker
trap 'stop TERM "$SERVER"' EXIT
start_server
until "$PY" -c "import urllib.request as u; u.urlopen('$TINKER_BASE_URL/api/v1/healthz', timeout=5)" 2>/dev/null; do kill -0 "$SERVER" && sleep 2; done
cd "$ROOT" && "$PY" -m claw_lab.long.record_tinker --url "$TINKER_BASE_URL" --model "$MODEL"
