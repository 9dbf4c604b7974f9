#!/bin/sh
# The table that papers print: clean accuracy, certified and attacked at some radii, for two networks.
#     sh examples/certified_accuracy.sh
set -e
layercert batch mnist17_l1_2x10 mnist17_plain_2x10 --data digits --index 0:12 --domain 0 1 \
    --eps 0.01,0.03,0.1 --time-limit 20 --jobs 2 --out run
layercert report run --class-names 1,7
cat run/report/accuracy.csv
