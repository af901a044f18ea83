#!/usr/bin/env bash
# A real local server of Tinker's protocol (skyrl 0.4.0) is killed with -9 for 60 seconds in the middle of talk and training, then started again.
#   bash lab/claw_lab/long/tinker_outage.sh [FOLDER] [SECONDS]     default: a temporary folder, 60
# Prints answers, failed requests, losses, and whether training continued; exits with 0 if nothing was lost. Installs as run_tinker.sh.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck disable=SC2034 # read by prepare_tinker
FOLDER=${1:-$(mktemp -d)}
# shellcheck source=tinker_server.sh
source "$ROOT/lab/claw_lab/long/tinker_server.sh"
prepare_tinker
trap 'stop TERM "$RUN"; stop TERM "$SERVER"' EXIT
start_server
start_run rl
cd "$ROOT"
"$PY" -m claw_lab.long.tinker_outage --url "http://127.0.0.1:$PORT" --run-dir "$STATE/run" --server "$SERVER" \
  --up "$STATE/up" --seconds "${2:-60}" &
TALK=$!
until [ -e "$STATE/up" ] || ! kill -0 "$TALK" 2>/dev/null; do sleep 0.5; done
start_server
status=0
wait "$TALK" || status=$?
grep -h "the service\|answers again\|lost" "$STATE/run.log" "$STATE"/run/logs/*.log | tail -20 || :
exit "$status"
