"""The audit: `make soundness`, or `python scripts/soundness --kind scales --cases 100`.

Prints a line per kind, every fault with what repeats it, and ends with code 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import active_children
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / "scripts"), str(ROOT / "tests")]
sys.path[:0] = PATHS
# spawned workers find the same modules, and keep to one thread each
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.setdefault("NUMBA_NUM_THREADS", "1")


def main() -> int:
    from rich.console import Console
    from rich.progress import Progress

    from soundness.audit import KINDS, Tally, run

    parser = argparse.ArgumentParser(prog="soundness", description=__doc__)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind (may be repeated)")
    parser.add_argument("--cases", type=int, help="so many cases of each kind; by default as in the table of kinds")
    parser.add_argument("--part", type=float, default=1.0, help="this part of the cases of a full run")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so long")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    kinds = args.kind or list(KINDS)
    counts = {kind: args.cases or max(1, round(KINDS[kind][1] * args.part)) for kind in kinds}
    tallies, start = {kind: Tally() for kind in kinds}, time.monotonic()
    console = Console(soft_wrap=True)
    stopped, told = False, 0
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("cases", total=sum(counts.values()))
        try:
            for kind, tally in run(counts, args.seed, args.jobs, args.first):
                tallies[kind].add(tally)
                progress.advance(bar, tally.cases)
                if not console.is_terminal and (share := int(progress.tasks[bar].percentage) // 10) > told:
                    told = share
                    print(f"{share}0 % of the cases", file=sys.stderr, flush=True)
                for number, text in tally.faults:
                    console.print(f"{kind} {number}: {text}", markup=False, highlight=False)
                    again = f"--kind {kind} --first {number} --cases 1 --seed {args.seed} --jobs 1"
                    console.print(f"  again: make soundness ARGS='{again}'", markup=False, highlight=False)
                if args.minutes and time.monotonic() - start > 60 * args.minutes:
                    console.print(f"stopped after {args.minutes:g} minutes, as asked")
                    stopped = True
                    break
        except KeyboardInterrupt:  # what was found so far is told all the same
            console.print("stopped by hand")
            stopped = True
    print(f"{'kind':13s} {'cases':>6s} {'faults':>6s} {'CPU s':>6s}  answers")
    for kind, tally in tallies.items():
        words = ", ".join(f"{word} {count}" for word, count in tally.words.most_common())
        print(f"{kind:13s} {tally.cases:6d} {len(tally.faults):6d} {tally.seconds:6.0f}  {words}")
    cases, faults = sum(t.cases for t in tallies.values()), sum(len(t.faults) for t in tallies.values())
    minutes = (time.monotonic() - start) / 60
    print(f"{cases} cases, {faults} faults, seed {args.seed}, {minutes:.1f} minutes")
    sys.stdout.flush()
    if stopped:
        for worker in active_children():  # at a block, or waiting for one that nobody will send
            worker.terminate()
        os._exit(1 if faults else 0)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
