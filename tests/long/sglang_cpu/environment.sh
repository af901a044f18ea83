# shellcheck shell=bash
# Sourced after ../engine.sh. sglang_on_cpu FOLDER: an environment with SGLang for CPUs, made once (3.4 GB of downloads).
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
