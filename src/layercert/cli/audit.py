"""`layercert audit`: how good are attacks and verifiers? Their radii beside the exact ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

from layercert.cli.options import examples

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_audit(commands: Commands) -> argparse.ArgumentParser:
    p = commands.add_parser(
        "audit",
        help="attacks and verifiers measured against exact radii, with a ranking",
        epilog=examples(
            "layercert audit --tool fgsm --tool pgd --norm linf --out audit",
            "layercert audit --plugin my_attack.py --tool mine --tool pgd --out audit",
            "layercert audit --truth RUN --scores radii.csv --out audit",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--truth", metavar="DIR", help="a RadiusBench or a run of batch (default: the shipped RadiusBench)")
    p.add_argument(
        "--tool", action="append", default=[], metavar="NAME", help="repeatable (default: all but the slow ones)"
    )
    p.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="Python file with a list TOOLS of your own"
    )
    p.add_argument("--scores", action="append", default=[], metavar="CSV", help="radii from elsewhere; repeatable")
    p.add_argument("--network", action="append", default=[], metavar="NAME", help="only this network; repeatable")
    p.add_argument("--norm", action="append", default=[], help="only this norm; repeatable")
    p.add_argument("--setting", action="append", default=[], help="only box or free; repeatable")
    p.add_argument("--inputs", type=int, help="at most so many of each network, norm and setting")
    p.add_argument("--out", default="audit", metavar="DIR", help="folder of the page (default audit)")
    p.add_argument("--resume", action="store_true", help="go on with an audit in this folder that was stopped")
    p.add_argument("--quiet", action="store_true", help="no lines of progress")
    return p


def run(args: argparse.Namespace) -> int:
    from layercert.audit import Answers, Wanted, audit, read_scores, tools_named, truth, write_audit
    from layercert.audit.case import check_names
    from layercert.audit.page import markdown
    from layercert.cli import OK
    from layercert.errors import OptionError

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    if args.inputs is not None and args.inputs < 1:
        raise OptionError(f"the number of inputs must be >= 1, got {args.inputs}")
    wanted = Wanted(tuple(args.network), tuple(args.norm), tuple(args.setting), args.inputs)
    source = truth(None if args.truth is None else Path(args.truth))
    check_names(source, wanted)
    if not any(wanted(row) for row in source.rows):
        raise OptionError("the truth has no exact radius for these networks, norms and settings; ask for others")
    only_scores = args.scores and not args.tool and not args.plugin
    tools = [] if only_scores else tools_named(args.tool, [Path(name) for name in args.plugin])
    scores = audit(source, tools, wanted, say, Answers(Path(args.out), args.resume))
    for name in args.scores:
        scores += read_scores(Path(name), source, wanted)
    if not scores:
        raise OptionError("no tool answered; the lines above say why")
    page = write_audit(scores, Path(args.out))
    print(markdown(scores))
    print(page)
    return OK
