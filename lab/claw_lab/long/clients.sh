#!/usr/bin/env bash
# The agents people use, each from its registry in the newest version that was looked at, against the real gateway: sessions,
# main and side turns, next states, tool calls, exact ids, while the weights change every second. About 1.5 GB the first time.
# Usage: bash lab/claw_lab/long/clients.sh [codex claude opencode hermes openclaw]      default: all of them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$here/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt"
set_python_path
cache=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl/clients
[ $# -gt 0 ] || set -- codex claude opencode hermes openclaw
agents=()

npm_client() { # COMMAND PACKAGE VERSION
  local folder=$cache/$1-$3
  [ -x "$folder/node_modules/.bin/$1" ] || npm install --prefix "$folder" --no-audit --no-fund --loglevel=error "$2@$3"
  PATH=$folder/node_modules/.bin:$PATH
}

for name in "$@"; do
  case $name in
    codex) npm_client codex @openai/codex 0.169.0 ;;
    claude) npm_client claude @anthropic-ai/claude-code 2.1.197 ;;
    opencode) npm_client opencode opencode-ai 1.18.33 ;;
    hermes)
      folder=$cache/hermes-0.19.0
      [ -x "$folder/bin/hermes" ] || { "$PY" -m venv "$folder" && "$folder/bin/pip" install -q hermes-agent==0.19.0; }
      mkdir -p "$cache/bin" && ln -sfn "$folder/bin/hermes" "$cache/bin/hermes"
      PATH=$cache/bin:$PATH
      ;;
    openclaw) continue ;;
    *) echo "error: no client $name" >&2 && exit 2 ;;
  esac
  agents+=("$name")
done
export PATH
status=0
[ ${#agents[@]} = 0 ] || "$PY" -m claw_lab.long.clients "${agents[@]}" || status=1
for name in "$@"; do
  [ "$name" != openclaw ] || "$PY" -m claw_lab.e2e.run || status=1
done
exit "$status"
