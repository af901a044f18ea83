#!/usr/bin/env bash
# Agents, each from its registry, meet a tool call that is cut off, errors and a conversation that outgrows the context.
# Real gateway, scripted engine. About 3 GB the first time.
# Usage: bash lab/claw_lab/long/client_troubles.sh [codex claude opencode kilo hermes cline qwen pi aider]      default: all of them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$here/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt"
set_python_path
cache=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl/clients
[ $# -gt 0 ] || set -- codex claude opencode kilo hermes cline qwen pi aider
PATH=$("$PY" -m claw_lab.e2e.install):$PATH

npm_client() { # COMMAND PACKAGE VERSION
  local folder=$cache/$1-$3
  [ -x "$folder/node_modules/.bin/$1" ] || npm install --prefix "$folder" --no-audit --no-fund --loglevel=error "$2@$3"
  PATH=$folder/node_modules/.bin:$PATH
}

pip_client() { # COMMAND PACKAGE VERSION
  local folder=$cache/$1-$3
  [ -x "$folder/bin/$1" ] || { "$PY" -m venv "$folder" && "$folder/bin/pip" install -q "$2==$3"; }
  mkdir -p "$cache/bin" && ln -sfn "$folder/bin/$1" "$cache/bin/$1"
  PATH=$cache/bin:$PATH
}

for name in "$@"; do
  case $name in
    codex) npm_client codex @openai/codex 0.171.0 ;;
    claude) npm_client claude @anthropic-ai/claude-code 2.1.332 ;;
    opencode) npm_client opencode opencode-ai 1.18.33 ;;
    kilo) npm_client kilo @kilocode/cli 7.7.7 ;; # of 7.8.1 the registry lacks the programs for Linux
    hermes) pip_client hermes hermes-agent 0.19.0 ;;
    cline) npm_client cline cline 3.0.65 ;;
    qwen) npm_client qwen @qwen-code/qwen-code 0.24.4 ;;
    pi) npm_client pi @earendil-works/pi-coding-agent 1.6.0 ;;
    aider) pip_client aider aider-chat 0.86.2 ;;
    *) echo "error: no client $name" >&2 && exit 2 ;;
  esac
done
export PATH
exec "$PY" -m claw_lab.long.client_troubles "$@"
