#!/usr/bin/env bash
# The code by which clients recognise errors (litellm, Aider, Hermes, pi, OpenClaw), each from its registry, against the real
# gateway: long prompts, wrong keys, rate limits, unknown models, wrong fields, time-outs, by each API. About 3 GB the first time.
# Usage: bash lab/claw_lab/long/error_words.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$here/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt"
set_python_path
cache=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl/error_words
mkdir -p "$cache"

python_client() { # NAME PACKAGE...
  local folder=$cache/$1
  [ -e "$folder/installed" ] || { "$PY" -m venv "$folder" && "$folder/bin/pip" install -q "${@:2}" && touch "$folder/installed"; }
}

path=$("$PY" -m claw_lab.e2e.install)
ln -sfn "$(dirname "${path%%:*}")" "$cache/node"
ln -sfn "$(dirname "$(dirname "${path##*:}")")" "$cache/openclaw"
python_client litellm litellm==1.110.2
python_client aider-chat aider-chat==0.86.2
python_client hermes-agent hermes-agent==0.19.0 anthropic
[ -d "$cache/pi/node_modules" ] || npm install --prefix "$cache/pi" --no-audit --no-fund --loglevel=error @earendil-works/pi-ai@1.6.0
CLIENT_MATCHERS=$cache exec "$PY" -m pytest -q -p no:cacheprovider "$ROOT/tests/openclaw/clients/test_error_matchers.py"
