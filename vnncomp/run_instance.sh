#!/bin/bash
# VNN-COMP: run_instance.sh v1 BENCHMARK ONNX VNNLIB RESULTS_FILE TIMEOUT
# RESULTS_FILE: first line sat, unsat, timeout, unknown or error; after sat the counterexample ((X_0 v) .. (Y_0 v) ..).
# LAYERCERT_METHOD chooses the search method (default: by the number of inputs).
set -euo pipefail

if [ "${1:-}" != v1 ] || [ $# -ne 6 ]; then
    echo "usage: run_instance.sh v1 BENCHMARK ONNX VNNLIB RESULTS_FILE TIMEOUT" >&2
    exit 1
fi
onnx=$3 vnnlib=$4 results=$5 timeout=$6
here=$(cd "$(dirname "$0")" && pwd)
source "$here/python.sh"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Killed from outside, the file must not hold half an answer: it says timeout until the answer is complete.
echo timeout > "$results"
code=0
# the competition's clock also counts the start of Python
limit=$(awk -v t="$timeout" 'BEGIN { print (t > 10) ? t - 3 : t }')
"$layercert_python" -m layercert.cli verify "$onnx" "$vnnlib" --time-limit "$limit" \
    ${LAYERCERT_METHOD:+--method "$LAYERCERT_METHOD"} > "$results.part" || code=$?
if [ -s "$results.part" ]; then
    mv "$results.part" "$results"
else
    rm -f "$results.part"
    echo error > "$results"
fi
# undecided (3) is an answer too
[ "$code" -eq 0 ] || [ "$code" -eq 3 ]
