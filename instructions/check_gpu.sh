#!/usr/bin/env bash
# Reports within ten seconds what this machine has for training on GPUs and what is missing; changes nothing.
#   bash instructions/check_gpu.sh
# Exit status 0 if all that is needed is there. VENV (default .venv) and SGLANG_PYTHON name the environments;
# with ROLLOUT_BACKEND=vllm it looks for vLLM, in VLLM_PYTHON. HF_CKPT (or MODEL_PATH), HOST and PORT are looked at too.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${VENV:-$ROOT/.venv}
PY=$VENV/bin/python
case ${ROLLOUT_BACKEND:-sglang} in
  vllm) NAME=vLLM ENGINE=vllm VARIABLE=VLLM_PYTHON ;;
  *) NAME=SGLang ENGINE=sglang VARIABLE=SGLANG_PYTHON ;;
esac
ENGINE_PY=$VENV-$ENGINE/bin/python
[ -x "$ENGINE_PY" ] || ENGINE_PY=$PY
ENGINE_PY=${!VARIABLE:-$ENGINE_PY}
CHECKER=$PY
[ -x "$CHECKER" ] || CHECKER=python3
LIMIT=8 # seconds for each question; all are asked at the same time
MISSING=0
ANSWERS=$(mktemp -d)
trap 'rm -rf "$ANSWERS"' EXIT

good() { printf 'ok       %s\n' "$*"; }
missing() { printf 'missing  %s\n         %s\n' "$1" "$2"; MISSING=1; }
note() { printf 'note     %s\n' "$*"; }

# ask NAME COMMAND...: runs it in parallel with the others; its output is the answer, its last line the exit status.
ask() {
  local answer=$ANSWERS/$1 status=0
  shift
  { timeout -k 1 "$LIMIT" "$@" >"$answer" || status=$?; } 2>/dev/null
  printf '\nstatus %s\n' "$status" >>"$answer"
}

# value_of NAME KEY: the value of a key in an answer; fails if there is no value.
value_of() { sed -n "s/^$2 //p" "$ANSWERS/$1" | grep .; }

# too_slow NAME: it was ended, or killed where it did not end.
too_slow() { case $(value_of "$1" status) in 124 | 137) ;; *) return 1 ;; esac; }

# shellcheck disable=SC2016
VERSIONS='
import importlib.metadata, importlib.util, sys
for name in sys.argv[1].split():
    try: print(name, importlib.metadata.version(name), flush=True)
    except importlib.metadata.PackageNotFoundError: pass
if all(importlib.util.find_spec(name) for name in ("aiohttp_cors", "opencensus")): print("jobs yes", flush=True)
'
TRAINER=$VERSIONS'
import torch
if torch.cuda.is_available(): print("cuda", torch.version.cuda)
'
KERNELS=$VERSIONS'
import sgl_kernel
print("kernels load")
'

ask_all() {
  ask gpus nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader &
  ask trainer "$PY" -c "$TRAINER" "torch ray bitsandbytes" &
  if [ "$ENGINE" = sglang ]; then
    ask engine "$ENGINE_PY" -c "$KERNELS" sglang &
    ask toolchain env PYTHONPATH="$ROOT/base:$ROOT/slime" "$CHECKER" -m slime.engines.toolchain "$ENGINE_PY" &
  else
    ask engine "$ENGINE_PY" -c "$VERSIONS" vllm &
  fi
  wait
}

check_driver() {
  local line driver problem gpus=0
  if ! command -v nvidia-smi >/dev/null; then
    missing "GPU" "no nvidia-smi: install NVIDIA's driver; in Docker start with --gpus all"
    return
  fi
  while IFS= read -r line; do
    case $line in '' | 'status '*) continue ;; esac
    gpus=$((gpus + 1)) driver=${line##*, }
    good "GPU ${line%, *}"
  done <"$ANSWERS/gpus"
  if [ "$(value_of gpus status)" != 0 ] || [ "$gpus" = 0 ]; then
    missing "GPU" "nvidia-smi finds none: is the driver loaded, and the GPU given to this container?"
    return
  fi
  case ${driver%%.*} in
    '' | *[!0-9]*) ;;
    *)
      if problem=$(PYTHONPATH=$ROOT/base:$ROOT/slime "$CHECKER" -m slime.plan.driver "$driver" "$PY" "$ENGINE_PY" 2>/dev/null); then
        good "driver $driver"
      elif [ -n "$problem" ]; then
        missing "driver that is new enough (there is $driver)" "$problem"
      else
        note "driver $driver; 580 or later runs CUDA 13, for which torch and the engines are built"
      fi
      ;;
  esac
  [ "$gpus" -ge 8 ] || note "$gpus GPUs: run_qwen*.sh take 8 (trainer 4, policy 2, judge 2), *_lora*.sh 4, *_1gpu*.sh 1; or set ACTOR_GPUS, ROLLOUT_GPUS, PRM_GPUS, TP"
}

check_trainer() {
  local version reinstall
  if [ ! -x "$PY" ]; then
    missing "Python environment $PY" "any launch script makes it; or: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
    ROOT=$ROOT bash -c 'source "$ROOT/launch/env.sh" && find_python' >/dev/null 2>&1 ||
      missing "Python 3.11, 3.12 or 3.13 with venv" "$(ROOT=$ROOT bash -c 'source "$ROOT/launch/env.sh" && python_advice'); or PYTHON=/path/to/python"
    return
  fi
  reinstall="$PY -m pip install --force-reinstall $(grep '^torch==' "$ROOT/requirements.txt"), TORCH_INDEX_URL unset"
  if ! version=$(value_of trainer torch); then
    missing "torch" "$PY -m pip install -r requirements.txt"
  elif value_of trainer cuda >/dev/null; then
    good "torch $version for CUDA $(value_of trainer cuda)"
  elif too_slow trainer && [ "${version%+cpu}" = "$version" ]; then
    note "torch $version took longer than $LIMIT s to load, so it is not known whether it sees a GPU; a second time is quicker"
  else
    missing "torch that sees a GPU (there is $version)" "a CPU build, or a driver older than its CUDA: $reinstall"
  fi
  if version=$(value_of trainer ray); then good "ray $version"; else missing "ray" "$PY -m pip install -r requirements.txt"; fi
  if value_of trainer jobs >/dev/null; then good "ray job submit"; else note "no ray[default]: ray job submit needs it ($PY -m pip install -r instructions/requirements-gpu.txt)"; fi
  if version=$(value_of trainer bitsandbytes); then good "bitsandbytes $version"; else note "no bitsandbytes: --load-in-4bit needs it ($PY -m pip install -r instructions/requirements-gpu.txt)"; fi
}

check_engine() {
  local version
  if version=$(value_of engine "$ENGINE"); then
    good "$NAME $version ($ENGINE_PY)"
    [ "$ENGINE" != sglang ] || check_kernels
    return
  fi
  missing "$NAME in $ENGINE_PY" "a launch script installs it into $VENV-$ENGINE if $VARIABLE is not set; or: python3 -m venv .venv-$ENGINE && .venv-$ENGINE/bin/pip install -r instructions/requirements-$ENGINE.txt; export $VARIABLE=$ROOT/.venv-$ENGINE/bin/python"
  command -v c++ >/dev/null || command -v g++ >/dev/null || missing "C++ compiler for the engine's kernels" "apt-get install g++"
}

# check_kernels: SGLang compiles kernels when it first computes, so its Python needs more than packages.
check_kernels() {
  local problem found=0
  while IFS= read -r problem; do
    case $problem in '' | 'status '*) continue ;; esac
    found=1
    if [ "$(value_of toolchain status)" = 0 ]; then
      good "for $NAME's kernels: $problem"
    else
      missing "for SGLang's kernels: ${problem%%:*}" "${problem#*: }"
    fi
  done <"$ANSWERS/toolchain"
  [ "$found" = 1 ] || note "the parts of SGLang's compiler could not be checked ($CHECKER)"
  if value_of engine kernels >/dev/null; then
    good "sgl_kernel loads"
  elif too_slow engine; then
    note "sgl_kernel took longer than $LIMIT s to load; a second time is quicker"
  else
    missing "sgl_kernel that loads" "$ENGINE_PY -c 'import sgl_kernel' shows why; its wheels need glibc 2.34 (Ubuntu 22.04, Debian 12)"
  fi
}

# check_model: the folder that a launch script would serve, where one is named.
check_model() {
  local folder=${HF_CKPT:-${MODEL_PATH:-}}
  if [ -z "$folder" ]; then
    note "no HF_CKPT: a script looks for its model in models/NAME (hf download Qwen/NAME --local-dir models/NAME)"
  elif [ ! -f "$folder/config.json" ]; then
    missing "model in $folder (no config.json)" "set HF_CKPT to the folder of a Hugging Face model: hf download Qwen/Qwen3-4B-Thinking-2507 --local-dir $folder"
  elif ! compgen -G "$folder/*.safetensors" >/dev/null; then
    missing "weights in $folder (no *.safetensors)" "run the same hf download again, which resumes it"
  else
    good "model $folder"
  fi
}

# check_port: whether the port is free, and the key without which a script listens on this machine alone.
check_port() {
  local port=${PORT:-30000}
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    missing "port $port (another program listens there)" "stop it, or set PORT to another one"
  else
    good "port $port is free"
  fi
  if [ -z "${SGLANG_API_KEY:-}${OPENCLAW_API_KEY:-}${OPENCLAW_API_KEYS:-}" ]; then
    note "no SGLANG_API_KEY: scripts serve this machine alone, on 127.0.0.1; set one to serve others too"
  fi
}

check_machine() {
  local shm memory disk
  shm=$(df -k --output=size /dev/shm 2>/dev/null | tail -1 | tr -d ' ')
  if [ "${shm:-0}" -ge 8000000 ]; then good "/dev/shm $((shm / 1048576)) GiB"; else missing "/dev/shm of 8 GiB (there is ${shm:-0} KiB)" "docker run --shm-size=16g; Kubernetes: an emptyDir with medium: Memory"; fi
  memory=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  if [ "$memory" -ge 160 ]; then good "$memory GiB of memory are free"; else note "$memory GiB of memory are free; a run of a 4 B model with the gate takes about 120 (28 with --use-lora): DRY_RUN=1 before a launch script counts it"; fi
  disk=$(df -k --output=avail "$ROOT" 2>/dev/null | tail -1 | tr -d ' ')
  note "$((${disk:-0} / 1048576)) GiB of disk are free in $ROOT; DRY_RUN=1 before a launch script counts what checkpoints take"
}

ask_all
check_driver
check_trainer
check_engine
check_model
check_port
check_machine
exit "$MISSING"
