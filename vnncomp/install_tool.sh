#!/bin/bash
# VNN-COMP: install_tool.sh v1
# Installs LayerCert with onnxruntime into an environment of its own and compiles the kernels once.
set -euo pipefail

if [ "${1:-}" != v1 ]; then
    echo "usage: install_tool.sh v1 (got '${1:-}')" >&2
    exit 1
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-python3}

"$python" -m venv "$root/.venv-vnncomp"
"$root/.venv-vnncomp/bin/python" -m pip --disable-pip-version-check install --quiet "$root[onnxruntime]"
"$root/.venv-vnncomp/bin/python" "$here/warm_up.py"
