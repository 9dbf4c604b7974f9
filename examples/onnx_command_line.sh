#!/usr/bin/env bash
# An ONNX model from the command line: exact radii of three digits, then one of them verified at a radius.
#
#     bash examples/onnx_command_line.sh
set -euo pipefail
data=$(python -c "import layercert, pathlib; print(pathlib.Path(layercert.__file__).parent / 'data')")

layercert measure "$data/mnist17_l1_2x20.onnx" --input "$data/digits.npz" --index 0:3 --domain 0 1 --norm linf
layercert verify "$data/mnist17_l1_2x20.onnx" --input "$data/digits.npz" --index 0 --domain 0 1 --radius 0.1
