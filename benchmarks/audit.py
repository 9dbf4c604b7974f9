"""The audit of docs/audit.md: attacks and verifiers on 16 networks of RadiusBench, five inputs each, inside [0, 1].

    python benchmarks/audit.py --out audit       # the page, audit.md, ranking.csv and scores.csv

An audit that was stopped, by kill -9 too, goes on with the same command. `--full` adds the attacks whose own settings
take minutes per network. What is installed is asked: torch and foolbox (`layercert[torch,audit]`), torchattacks by
hand.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from pathlib import Path

from layercert.audit import Answers, Wanted, audit, tools_named, truth, write_audit
from layercert.audit.libraries import installed

NETWORKS = (
    "wine_plain_2x20", "digits_plain_2x20", "digits_adv_2x50", "mnist17_l1_2x20", "mnist17_plain_3x50",
    "digits_ibp_2x50", "cancer_adv_3x20", "encounters_plain_4x25", "digits_cnn_plain", "spirals_plain_4x20",
    "mnist17_plain_2x20", "mnist10_plain_2x20", "iris_sklearn_2x10", "wine_adv_2x20", "digits_plain_5x20",
    "encounters_plain_6x50",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("audit"))
    parser.add_argument("--full", action="store_true", help="the slow attacks too: some 20 minutes of CPU time more")
    args = parser.parse_args()
    tools = tools_named([])
    if args.full:
        tools += [tool for tool in installed() if tool.slow]
    answers = Answers(args.out, resume=True)
    scores = []
    for name in NETWORKS:  # written after each network: a run stopped half way has whole networks
        wanted = Wanted((name,), settings=("box",), inputs=args.inputs)
        scores += audit(truth(None), tools, wanted, lambda text: print(text, flush=True), answers)
        write_audit(scores, args.out)


if __name__ == "__main__":
    main()
