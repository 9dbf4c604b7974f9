"""`layercert report`: a page and tables from finished or running batches."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from layercert.batch import open_store
from layercert.batch.export import export
from layercert.cli.radii import radii
from layercert.errors import OptionError
from layercert.report import write_report


def run(args: argparse.Namespace) -> int:
    from layercert.cli import OK

    folders = [Path(name) for name in args.run_folder]
    if args.export:
        if len(folders) > 1:
            raise OptionError(f"--export writes the results of one run, got {len(folders)}; export them one by one")
        with closing(open_store(folders[0])) as store:
            for name in args.export:
                print(f"{name}: {export(store, Path(name))} results")
        return OK
    out = folders[0] / "report" if args.out is None else Path(args.out)
    names = [] if args.class_names is None else [name.strip() for name in args.class_names.split(",")]
    print(write_report(folders, out, names, args.gallery, args.title, eps=radii(args.eps)))
    return OK
