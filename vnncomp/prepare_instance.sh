#!/bin/bash
# VNN-COMP: prepare_instance.sh v1 BENCHMARK ONNX VNNLIB
# Nothing is converted and nothing is left running between instances: only the files and the kernels are made ready.
set -euo pipefail

if [ "${1:-}" != v1 ] || [ $# -ne 4 ]; then
    echo "usage: prepare_instance.sh v1 BENCHMARK ONNX VNNLIB" >&2
    exit 1
fi
for file in "$3" "$4"; do
    if [ ! -r "$file" ]; then
        echo "prepare_instance.sh: cannot read '$file'" >&2
        exit 1
    fi
done
# the first import after an installation or a reboot reads the compiled kernels from the disk: not on the clock here
here=$(cd "$(dirname "$0")" && pwd)
source "$here/python.sh"
"$layercert_python" "$here/warm_up.py"
