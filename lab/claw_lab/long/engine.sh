# shellcheck shell=bash
# Sourced by the scripts in this folder that run a real engine: its Python, two tiny models, and an engine that ends with the
# script. Sets here, root, python, work (a folder that goes at the end) and, while an engine runs, engine (its process).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
engine=
leave() {
  stop_engine
  rm -rf "$work"
}
trap leave EXIT

# is_new FOLDER: makes a virtual environment; false where `is_complete FOLDER` was reached before.
is_new() {
  [ ! -f "$1/complete" ] || return 1
  [ -x "$1/bin/python" ] || "$python" -m venv "$1" || exit 1
}

is_complete() {
  touch "$1/complete"
}

# sglang_on_cpu FOLDER: an environment with SGLang for CPUs, made once (3.4 GB of downloads).
sglang_on_cpu() {
  local parts=$here/sglang_cpu site
  if is_new "$1"; then
    "$1/bin/pip" install -q torch==2.13.0
    "$1/bin/pip" install -q --no-deps sglang==0.5.23
    "$1/bin/pip" install -q torch==2.13.0 -r "$parts/requirements.txt"
    "$1/bin/pip" install -q --no-deps -r "$parts/requirements-nodeps.txt"
    is_complete "$1"
  fi
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp "$parts/sitecustomize.py" "$site/"
  cp -r "$parts/sgl_kernel" "$site/"
}

# two_models: $work/first and $work/second, of one architecture; from now on our packages can be imported.
two_models() {
  export PYTHONPATH="$root:$root/base:$root/slime:$root/openclaw-rl:$root/openclaw-test:$root/lab"
  "$python" -m claw_lab.long.tiny_models "$work/first" "$work/second"
}

# start_engine FLAGS OF THE LAUNCHER...: returns when it serves, after printing its ready line.
start_engine() {
  rm -f "$work/ready"
  "$python" -m slime.engines.launch --model-path "$work/first" "$@" >"$work/ready" 2>"$work/log" &
  engine=$!
  until [ -s "$work/ready" ]; do
    if ! kill -0 "$engine" 2>/dev/null; then
      tail -20 "$work/log" >&2
      exit 1
    fi
    sleep 0.5
  done
  cat "$work/ready"
}

stop_engine() {
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    engine=
  fi
}
