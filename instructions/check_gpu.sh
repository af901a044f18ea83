#!/usr/bin/env bash
# Tells what this machine has for training on GPUs and what is missing; changes nothing.
#   bash instructions/check_gpu.sh
# Exit status 0 if all that is needed is there. VENV (default .venv) and SGLANG_PYTHON name the environments;
# with ROLLOUT_BACKEND=vllm it looks for vLLM, in VLLM_PYTHON.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PY=${VENV:-$ROOT/.venv}/bin/python
case ${ROLLOUT_BACKEND:-sglang} in
  vllm) NAME=vLLM ENGINE=vllm VARIABLE=VLLM_PYTHON ;;
  *) NAME=SGLang ENGINE=sglang VARIABLE=SGLANG_PYTHON ;;
esac
ENGINE_PY=${!VARIABLE:-$PY}
CHECKER=$PY
[ -x "$CHECKER" ] || CHECKER=python3
MISSING=0

good() { printf 'ok       %s\n' "$*"; }
missing() { printf 'missing  %s\n         %s\n' "$1" "$2"; MISSING=1; }
note() { printf 'note     %s\n' "$*"; }

# has PYTHON MODULE: its version.
has() { "$1" -c "import importlib.metadata as m; print(m.version('$2'))" 2>/dev/null; }

check_driver() {
  local gpus
  if ! command -v nvidia-smi >/dev/null; then
    missing "GPU" "no nvidia-smi: install NVIDIA's driver; in Docker start with --gpus all"
  elif ! gpus=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null) || [ -z "$gpus" ]; then
    missing "GPU" "nvidia-smi finds none: is the driver loaded, and the GPU given to this container?"
  else
    while read -r line; do good "GPU $line"; done <<< "$gpus"
  fi
}

check_trainer() {
  if [ ! -x "$PY" ]; then
    missing "Python environment $PY" "any launch script makes it; or: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
    return
  fi
  local version
  if version=$("$PY" -c 'import torch; assert torch.cuda.is_available(), torch.__version__; print(torch.__version__, "for CUDA", torch.version.cuda)' 2>/dev/null); then
    good "torch $version"
  elif version=$(has "$PY" torch); then
    missing "torch that sees a GPU (there is $version)" "a CPU build, or a driver older than its CUDA: $PY -m pip install --force-reinstall $(grep '^torch==' "$ROOT/requirements.txt"), TORCH_INDEX_URL unset"
  else
    missing "torch" "$PY -m pip install -r requirements.txt"
  fi
  if version=$(has "$PY" ray); then good "ray $version"; else missing "ray" "$PY -m pip install -r requirements.txt"; fi
  if "$PY" -c 'import aiohttp_cors, opencensus' 2>/dev/null; then good "ray job submit"; else note "no ray[default]: ray job submit needs it ($PY -m pip install -r instructions/requirements-gpu.txt)"; fi
  if version=$(has "$PY" bitsandbytes); then good "bitsandbytes $version"; else note "no bitsandbytes: --load-in-4bit needs it ($PY -m pip install -r instructions/requirements-gpu.txt)"; fi
}

check_engine() {
  local version
  if version=$(has "$ENGINE_PY" "$ENGINE"); then
    good "$NAME $version ($ENGINE_PY)"
    [ "$ENGINE" != sglang ] || check_kernels
  else
    missing "$NAME in $ENGINE_PY" "python3 -m venv .venv-$ENGINE && .venv-$ENGINE/bin/pip install -r instructions/requirements-$ENGINE.txt; export $VARIABLE=$ROOT/.venv-$ENGINE/bin/python"
  fi
}

# check_kernels: SGLang compiles kernels when it first computes, so its Python needs more than packages.
check_kernels() {
  local problem found=0
  while read -r problem; do
    [ -z "$problem" ] || { missing "for SGLang's kernels: ${problem%%:*}" "${problem#*: }"; found=1; }
  done < <(PYTHONPATH=$ROOT/slime "$CHECKER" -m slime.engines.sglang.toolchain "$ENGINE_PY" | grep -v 'are there$' || :)
  [ "$found" = 1 ] || good "nvcc, C++ compiler and Python.h for SGLang's kernels"
  if "$ENGINE_PY" -c 'import sgl_kernel' 2>/dev/null; then
    good "sgl_kernel loads"
  else
    missing "sgl_kernel that loads" "$ENGINE_PY -c 'import sgl_kernel' says why; its wheels need glibc 2.34 (Ubuntu 22.04, Debian 12)"
  fi
}

check_machine() {
  local shm memory
  shm=$(df -k --output=size /dev/shm 2>/dev/null | tail -1 | tr -d ' ')
  if [ "${shm:-0}" -ge 8000000 ]; then good "/dev/shm $((shm / 1048576)) GiB"; else missing "/dev/shm of 8 GiB (there is ${shm:-0} KiB)" "docker run --shm-size=16g; Kubernetes: an emptyDir with medium: Memory"; fi
  memory=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  if [ "$memory" -ge 160 ]; then good "$memory GiB of memory are free"; else note "$memory GiB of memory are free; a run of a 4 B model with the gate takes about 120 (28 with --use-lora): DRY_RUN=1 before a launch script counts it"; fi
}

check_driver
check_trainer
check_engine
check_machine
exit "$MISSING"
