# shellcheck shell=bash
# Sourced by the arithmetic examples: finds slime and runs one training program to its end, with its servers stopped after it.
# Variables: PYTHON (default python), RUN_DIR (default runs/arithmetic in the present folder).

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SLIME=$(cd "$HERE/../.." && pwd)
PY=${PYTHON:-python}
RUN_DIR=${RUN_DIR:-runs/arithmetic}

die() { printf 'error: %s\n' "$*" >&2; exit 2; }

case ${DRY_RUN:-0} in
  0 | false | no | off) ;;
  *) die "DRY_RUN=$DRY_RUN: the examples have no plan; python -m slime.plan --help plans a model" ;;
esac
"$PY" -c 'import slime.types' 2>/dev/null || die "$PY does not find slime; run: pip install -e $SLIME"

# train PROGRAM NAME ARG...: PROGRAM is train.py or train_async.py, NAME a folder inside RUN_DIR.
train() {
  local program=$SLIME/$1 folder=$RUN_DIR/$2
  shift 2
  "$PY" -m slime.processes.supervisor --run-dir "$folder" -- "$PY" "$program" --run-dir "$folder" "$@"
}
