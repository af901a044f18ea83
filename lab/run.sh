#!/usr/bin/env bash
# Runs a program of the laboratory with every package of this repository on the path.
#   bash lab/run.sh NAME [ARGUMENT...]                       NAME without claw_lab, for example:
#   bash lab/run.sh benchmarks.serving.gateway_overhead
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
case ${1:-} in
  '' | -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; exit ;;
esac
ensure_env "$ROOT/requirements.txt"
exec "$PY" -m "claw_lab.$1" "${@:2}"
