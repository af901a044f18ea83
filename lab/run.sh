#!/usr/bin/env bash
# Runs a program of the laboratory with every package of this repository on the path.
#   bash lab/run.sh NAME [ARGUMENT...]                       NAME without claw_lab, for example:
#   bash lab/run.sh benchmarks.serving.gateway_overhead
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
has_torch() { PY=$1 has_module torch 2>/dev/null; }
case ${1:-} in
  '' | -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; exit ;;
esac
if [ "$1" = long.gpu_check ] && [ ! -e "${VENV:-$ROOT/.venv}/.installed-requirements" ] && has_torch "${PYTHON:=python3}"; then
  # A machine that is lent for minutes has a Python with torch and no network: nothing is installed on it.
  PY=$PYTHON
  set_python_path
else
  ensure_env "$ROOT/requirements.txt"
fi
exec "$PY" -m "claw_lab.$1" "${@:2}"
