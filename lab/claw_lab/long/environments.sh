#!/usr/bin/env bash
# Third-party environments and tools, each from its package in its own Python: a game of verifiers, a server that
# OpenEnv's own command makes, a task of Harbor's (where there is Python 3.12), an MCP server. About 1 GB the first time, then
# a minute or two; with --train, RL on each of the last three.  bash lab/claw_lab/long/environments.sh [--train]
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
ensure_env "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt"
set_python_path
cache=${XDG_CACHE_HOME:-$HOME/.cache}/openclaw-rl

python_with() { # NAME REQUIREMENT: prints the Python of an environment that has it
  local folder=$cache/$1
  [ -e "$folder/done" ] || { "$PY" -m venv "$folder" && "$folder/bin/pip" install -q "$2" >&2 && touch "$folder/done"; } || return
  echo "$folder/bin/python"
}

VERIFIERS_PYTHON=${VERIFIERS_PYTHON:-$(python_with verifiers-0.4.0 'verifiers[ta]==0.4.0')}
OPENENV_PYTHON=${OPENENV_PYTHON:-$(python_with openenv-0.10.0 openenv==0.10.0)}
MCP_PYTHON=${MCP_PYTHON:-$(python_with mcp-server-time-2026.10.19 mcp-server-time==2026.10.19)}
if [ -z "${HARBOR_PYTHON:-}" ] && command -v python3.12 >/dev/null; then
  HARBOR_PYTHON=$(PY=$(command -v python3.12) python_with harbor-0.24.0 harbor==0.24.0)
fi
export VERIFIERS_PYTHON OPENENV_PYTHON MCP_PYTHON HARBOR_PYTHON
exec "$PY" -m claw_lab.long.environments "$@"
