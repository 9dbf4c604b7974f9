"""The options of `batch`, `report` and `explore`; nothing but argparse is imported here, so that --help is instant."""

from __future__ import annotations

import argparse
from typing import TypeAlias

#: The methods' names, once more: `layercert.methods` would load numba, and --help must not wait for it.
METHODS = (
    "adaptive", "input-split", "geocert", "geocert-lip", "layercert-basic", "layercert-basic-late", "layercert-ia",
    "layercert-crown", "layercert-both", "layercert-recursive", "layercert-recursive-lp", "large", "mip",
)  # fmt: skip

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def examples(*lines: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def add_threshold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threshold", type=float, help="of a model with one output: class 1 above it (default 0, 0.5 after a Sigmoid)"
    )


def add_data(parser: argparse.ArgumentParser, name: str, required: bool) -> None:
    parser.add_argument(
        name,
        required=required,
        metavar="FILE",
        help=".npz, .npy, .csv, an idx file, a folder of images, or the shipped 'digits' or 'digits10'",
    )
    parser.add_argument("--index", help="which inputs: 7, 0:100, 3,5,8 (default: all)")
    parser.add_argument("--labels", metavar="FILE", help="labels in a file of their own (idx, .npy, or one per line)")
    parser.add_argument("--classes", help="keep these classes and number them 0, 1, ..: e.g. 1,7 for a 1-vs-7 network")


def add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="CLASSES", help="the nearest point of this class, or of one of these: 3,5")
    parser.add_argument(
        "--weights",
        metavar="FILE or LIST",
        help="distances of weights * (v - x): 1,2,0.5 or age=2,income=0.1 or a file with a number per input",
    )
    parser.add_argument(
        "--fixed", metavar="INPUTS", help="inputs that stay as they are, by position or name: age,10:20"
    )
    parser.add_argument("--integer", metavar="INPUTS", help="inputs that are whole numbers")
    parser.add_argument(
        "--one-of", metavar="GROUPS", help="of each group exactly one is 1, the others 0: red,green,blue;4:7"
    )


def add_search(parser: argparse.ArgumentParser, batch: bool = False) -> None:
    """How exactly, and with how much of the machine."""
    parser.add_argument(
        "--gap",
        type=float,
        help="stop when (upper - lower) / upper is this small (default 1e-6, called exact)",
    )
    parser.add_argument(
        "--threads", type=int, help=f"threads that one question may use (default: {'one' if batch else 'all cores'})"
    )
    parser.add_argument("--stack", default="default", help="distance solvers: default, library or paper")


def add_long(parser: argparse.ArgumentParser) -> None:
    """Searches that take long."""
    parser.add_argument(
        "--save",
        metavar="FILE",
        help="keep the search here; the same command goes on from there ('{}' stands for the input's number)",
    )
    parser.add_argument("--memory", metavar="SIZE", help="how much the open nodes may take, e.g. 2G (adaptive)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="search on a Dask cluster: tcp://host:8786 (adaptive)")


def add_batch(commands: Commands) -> argparse.ArgumentParser:
    p = commands.add_parser(
        "batch",
        help="many inputs x norms x methods x models, into a run that can be resumed",
        epilog=examples(
            "layercert batch a.onnx b.onnx --data test.npz --out run --norm l2 --norm linf --domain 0 1 --jobs 2",
            "layercert batch a.onnx --data t10k-images-idx3-ubyte.gz --index 0:100 --out run --eps 2/255,8/255",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("model", nargs="+", help=".onnx or .npz networks, or names of shipped ones")
    add_data(p, "--data", required=True)
    p.add_argument("--out", required=True, metavar="RUN", help="folder of the run; the same command continues it")
    p.add_argument("--norm", action="append", help="l1, l2, linf or a number p >= 1; repeatable (default linf)")
    p.add_argument(
        "--method",
        action="append",
        help=f"search method; repeatable (default auto: the best one per job): {', '.join(METHODS)}",
    )
    add_threshold(p)
    add_question(p)
    p.add_argument("--radius", type=float, help="look no farther than this")
    p.add_argument(
        "--eps", metavar="RADII", help="verify at these radii instead of measuring: 0.01,0.03,0.1 or 2/255,8/255"
    )
    p.add_argument("--domain", nargs=2, type=float, metavar=("LOW", "HIGH"), help="allowed range of every input")
    p.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="for each job, with --eps for each radius (default: none)"
    )
    add_search(p, batch=True)
    p.add_argument("--certificates", action="store_true", help="keep a certificate of every answer in the run")
    p.add_argument(
        "--cpu-time",
        action="store_true",
        help="the time limit counts CPU seconds of the worker, all its threads together: fair on a busy machine",
    )
    p.add_argument("--jobs", type=int, default=1, help="worker processes, one thread each (default 1)")
    p.add_argument("--memory", metavar="SIZE", help="memory limit of a worker, e.g. 2G; a job beyond it is ended")
    p.add_argument("--scheduler", metavar="ADDRESS", help="run on a Dask cluster: tcp://host:8786")
    p.add_argument("--retry-failed", action="store_true", help="run jobs again that failed or were ended before")
    p.add_argument(
        "--resume-undecided",
        action="store_true",
        help="go on with jobs that reached their time limit, from where each stopped; with another --time-limit",
    )
    p.add_argument(
        "--salvage", action="store_true", help="the run file is damaged: keep every readable result, compute the others"
    )
    p.add_argument(
        "--export", action="append", default=[], metavar="FILE", help="also write .csv, .jsonl or .parquet; repeatable"
    )
    p.add_argument("--log", action="store_true", help="a line per job on stderr instead of the progress bar")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    return p


def add_report(commands: Commands) -> argparse.ArgumentParser:
    p = commands.add_parser("report", help="one HTML page and plain tables from one run, or a comparison of several")
    p.add_argument("run_folder", nargs="+", metavar="RUN", help="folder of a run; several are compared")
    p.add_argument("--out", metavar="FOLDER", help="where to write (default: report/ in the first RUN)")
    p.add_argument("--class-names", help="names of the classes, in order: e.g. 1,7")
    p.add_argument("--gallery", type=int, default=200, help="pictures in the gallery, least robust first (default 200)")
    p.add_argument("--title", help="title of the page")
    p.add_argument(
        "--eps",
        metavar="RADII",
        help="certified accuracy at these radii: 0.01,0.03,0.1 or 2/255,8/255 (default: the run's)",
    )
    p.add_argument(
        "--export", action="append", default=[], metavar="FILE", help="only write the results: .csv, .jsonl or .parquet"
    )
    return p


def add_explore(commands: Commands) -> argparse.ArgumentParser:
    p = commands.add_parser("explore", help="picture or animation of a search in two dimensions")
    p.add_argument("model", nargs="?", default="appendix-a", help="a network (default: the paper's Appendix A)")
    p.add_argument("--at", metavar="X,Y", help="the input, for a network with two inputs")
    p.add_argument("--data", metavar="DATA", help="data set for a plane through three of its points")
    p.add_argument("--points", metavar="I,J,K", help="three positions in the data; the search starts at the first")
    p.add_argument("--method", action="append", help="search method; two are shown side by side (default: the paper's)")
    p.add_argument("--norm", default="l2", help="l1, l2, linf or a number p >= 1 (default l2)")
    p.add_argument("--label", type=int, help="the true class (default: the network's own)")
    add_threshold(p)
    p.add_argument("--radius", type=float, help="look no farther than this")
    p.add_argument("--steps", type=int, default=60, help="frames of an animation at most (default 60)")
    p.add_argument("--out", default="search.png", metavar="FILE", help=".png, .svg, .pdf, .gif or .html")
    return p
