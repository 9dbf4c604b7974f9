"""A batch with a report: two networks, two norms, results that survive anything, one page to look at.

    python examples/batch_with_report.py [FOLDER]

Stop it at any moment and start it again: it goes on where it stopped. The same from the command line:

    layercert batch mnist17_l1_2x10 mnist17_plain_2x10 --data digits --index 0:12 --domain 0 1 \
        --norm linf --norm l2 --time-limit 20 --jobs 2 --out FOLDER
    layercert report FOLDER --class-names 1,7
"""

import sys
from pathlib import Path

import layercert as lc
from layercert import shipped
from layercert.batch import LocalProcesses, Model, Options, Plan, run_batch
from layercert.io.datasets import load_dataset
from layercert.report import write_report

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
names = ("mnist17_l1_2x10", "mnist17_plain_2x10")
plan = Plan(
    models=tuple(Model(name, lc.load(shipped.path(name))) for name in names),
    data=load_dataset(shipped.path("digits"), "0:12"),
    options=Options(norms=("linf", "l2"), domain=(0.0, 1.0), time_limit=20.0),
)
tally = run_batch(plan, folder, LocalProcesses(jobs=2))
print(f"{tally.done} of {tally.total} done: {dict(tally.counts)}")
print("report:", write_report([folder], folder / "report", class_names=("1", "7")))
