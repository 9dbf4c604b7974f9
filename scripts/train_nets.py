"""Make the networks and digits shipped in `layercert/data` from the MNIST files.

    python scripts/train_nets.py train  --mnist DIR --out DIR --sizes 2x10 2x20 --family both
    python scripts/train_nets.py digits --mnist DIR --nets DIR --classes 17 --per-class 50
    python scripts/train_nets.py onnx   --nets DIR --net mnist17_l1_2x20
    python scripts/train_nets.py table  --nets DIR

The recipe is GeoCert's (Jordan, Lewis, Dimakis 2019), which the LayerCert paper follows: Adam at 1e-3,
10 epochs, batches of 16, cross-entropy + 1e-3 * (l1 norm of all weights). The `plain` family leaves out the
l1 term; nearly all its weights stay in use. Only `train` needs torch; only `onnx` needs onnx.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import re
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Layers = list[tuple[Float32, Float32]]  # (W, b) a layer, W of shape (outputs, inputs)

MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
LEARNING_RATE = 1e-3
L1_WEIGHT = {"l1": 1e-3, "plain": 0.0}  # family -> factor of the l1 norm in the loss
BATCH = 16
COLLAPSED = 0.9  # a test accuracy below this: deep l1 nets can die and answer one class for every input


class DataError(ValueError):
    """A file is missing or is not what it should be; the message says what was expected."""


@dataclass(frozen=True)
class Task:
    """Which digits a network tells apart; class k of the network is the digit `digits[k]`."""

    prefix: str
    digits: tuple[int, ...]
    digits_file: str


TASKS = {
    "17": Task("mnist17", (1, 7), "digits.npz"),
    "all": Task("mnist10", tuple(range(10)), "digits10.npz"),
}


@dataclass(frozen=True)
class Samples:
    """Flat images with pixels in [0, 1], their class index in the task, and their place in the MNIST file."""

    X: Float32
    y: Ints
    mnist_index: Ints


# --- reading MNIST --------------------------------------------------------------------------------


def read_idx(path: Path) -> Bytes:
    """The array in an idx file of unsigned bytes, gzipped or not."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"{path.name}: expected a complete gzip file, got: {error}; download it again"
        raise DataError(message) from error
    # two zero bytes, 8 for unsigned bytes, then the number of dimensions
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        start = raw[:4].hex(" ") or "an empty file"
        raise DataError(f"{path.name}: expected an idx file of unsigned bytes (00 00 08 ..), got {start}")
    dimensions = raw[3]
    header = 4 + 4 * dimensions
    if len(raw) < header:
        raise DataError(f"{path.name}: expected {header} header bytes, got {len(raw)}; download it again")
    shape = struct.unpack(f">{dimensions}I", raw[4:header])
    values = np.frombuffer(raw, dtype=np.uint8, offset=header)
    if values.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{path.name}: expected shape {shape}, got {values.size} bytes; download it again")
    return values.reshape(shape)


def find_mnist_file(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    expected = ", ".join(file for pair in MNIST_FILES.values() for file in pair)
    raise DataError(f"{name} is not in {folder}; expected four files there, plain or .gz: {expected}")


def load_samples(folder: Path, split: str, task: Task) -> Samples:
    """The digits of `task` in the `train` or `test` half of MNIST."""
    images, labels = (read_idx(find_mnist_file(folder, name)) for name in MNIST_FILES[split])
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{split} set: expected n images and n labels, got shapes {images.shape} and {labels.shape}; "
            "are the files of one download?"
        )
    index = np.flatnonzero(np.isin(labels, task.digits)).astype(np.int64)
    class_of = {digit: k for k, digit in enumerate(task.digits)}
    y = np.array([class_of[int(label)] for label in labels[index]], dtype=np.int64)
    X = images[index].reshape(len(index), -1).astype(np.float32) / np.float32(255)
    return Samples(X, y, index)


# --- networks -------------------------------------------------------------------------------------


def hidden_layers(size: str) -> list[int]:
    """'2x10' -> [10, 10]: two hidden layers of ten neurons."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", size)
    if match is None:
        raise DataError(f"expected a size such as 2x10 (2 hidden layers of 10 neurons), got {size!r}")
    return [int(match[2])] * int(match[1])


def forward(layers: Layers, X: Float32) -> Float64:
    """Logits in float64: the float32 weights are taken as real numbers."""
    z: Float64 = X.astype(np.float64)
    for k, (W, b) in enumerate(layers):
        z = z @ W.T.astype(np.float64) + b
        if k < len(layers) - 1:
            z = np.maximum(z, 0.0)
    return z


def is_correct(layers: Layers, samples: Samples) -> NDArray[np.bool_]:
    """Whether the right class wins outright; a tie is wrong, the point lies on the decision boundary."""
    logits = forward(layers, samples.X)
    rows = np.arange(len(samples.y))
    own = logits[rows, samples.y]
    logits[rows, samples.y] = -np.inf
    return np.asarray(own > logits.max(axis=1))


def save_net(path: Path, layers: Layers, meta: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta))}
    for k, (W, b) in enumerate(layers):
        arrays |= {f"W{k}": W, f"b{k}": b}
    np.savez_compressed(path, **arrays)


def load_net(path: Path) -> tuple[Layers, dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"no network {path.name} in {path.parent}; run the `train` step first")
    with np.load(path, allow_pickle=False) as file:
        depth = sum(name.startswith("W") for name in file.files)
        layers: Layers = [(file[f"W{k}"], file[f"b{k}"]) for k in range(depth)]
        meta: dict[str, Any] = json.loads(str(file["meta"]))
    return layers, meta


# --- training -------------------------------------------------------------------------------------


def load_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise DataError("training needs PyTorch; install it with `pip install layercert[torch]`") from error


def train(samples: Samples, widths: Sequence[int], l1_weight: float, seed: int, epochs: int) -> Layers:
    """Fit one ReLU network; `widths` counts the neurons of every layer after the input, the outputs last."""
    torch = load_torch()
    torch.set_num_threads(1)  # sums in a fixed order: the same seed gives the same weights
    torch.manual_seed(seed)
    X, y = torch.from_numpy(samples.X), torch.from_numpy(samples.y)
    sizes = [X.shape[1], *widths]
    linears = [torch.nn.Linear(n, m) for n, m in pairwise(sizes)]
    modules = [linears[0]]
    for linear in linears[1:]:
        modules += [torch.nn.ReLU(), linear]
    net = torch.nn.Sequential(*modules)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)

    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(net(X[batch]), y[batch])
            if l1_weight:
                loss = loss + l1_weight * sum(linear.weight.abs().sum() for linear in linears)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return [(linear.weight.detach().numpy(), linear.bias.detach().numpy()) for linear in linears]


def train_and_save(args: argparse.Namespace) -> None:
    task = TASKS[args.classes]
    hidden = {size: hidden_layers(size) for size in args.sizes}  # a misspelt size fails before any training
    train_set, test_set = (load_samples(args.mnist, split, task) for split in ("train", "test"))
    args.out.mkdir(parents=True, exist_ok=True)
    families = list(L1_WEIGHT) if args.family == "both" else [args.family]
    for family in families:
        for size in args.sizes:
            name = f"{task.prefix}_{family}_{size}"
            best = -1.0
            for seed in range(args.seed, args.seed + args.retries + 1):
                widths = [*hidden[size], len(task.digits)]
                layers = train(train_set, widths, L1_WEIGHT[family], seed, args.epochs)
                accuracy = float(is_correct(layers, test_set).mean())
                print(f"{name}  seed {seed}  test accuracy {accuracy:.4f}", flush=True)
                if accuracy > best:
                    best = accuracy
                    meta = {
                        "digits": task.digits, "hidden": hidden[size], "family": family, "seed": seed,
                        "epochs": args.epochs, "batch": BATCH, "learning_rate": LEARNING_RATE,
                        "l1_weight": L1_WEIGHT[family], "accuracy": round(accuracy, 6),
                        "torch": str(load_torch().__version__),
                    }  # fmt: skip
                    save_net(args.out / f"{name}.npz", layers, meta)
                if accuracy >= COLLAPSED:
                    break
            else:
                print(f"warning: {name} stayed below {COLLAPSED}; more --retries may find a better seed")


# --- digits, ONNX, table --------------------------------------------------------------------------


def pick_digits(samples: Samples, correct: NDArray[np.bool_], per_class: int, seed: int) -> Ints:
    """Rows of `samples`: `per_class` random correct ones of each class, the classes taking turns."""
    rng = np.random.default_rng(seed)
    columns = []
    for k in range(int(samples.y.max()) + 1):
        candidates = np.flatnonzero(correct & (samples.y == k))
        if len(candidates) < per_class:
            raise DataError(
                f"class {k}: expected {per_class} or more test digits which every network gets right, "
                f"got {len(candidates)}; lower --per-class or remove a collapsed network"
            )
        columns.append(rng.choice(candidates, per_class, replace=False))
    return np.stack(columns, axis=1).ravel()


def save_digits(args: argparse.Namespace) -> None:
    task = TASKS[args.classes]
    paths = sorted(args.nets.glob(f"{task.prefix}_*.npz"))
    if not paths:
        raise DataError(f"no network {task.prefix}_*.npz in {args.nets}; run the `train` step first")
    samples = load_samples(args.mnist, "test", task)
    correct = np.logical_and.reduce([is_correct(load_net(path)[0], samples) for path in paths])
    rows = pick_digits(samples, correct, args.per_class, args.seed)
    target = args.nets / task.digits_file
    np.savez_compressed(target, X=samples.X[rows], y=samples.y[rows], mnist_index=samples.mnist_index[rows])
    print(f"{target.name}: {len(rows)} of {correct.sum()} digits which all {len(paths)} nets get right")


def save_onnx(args: argparse.Namespace) -> None:
    """Write the network as a chain of Gemm and Relu nodes."""
    from onnx import TensorProto, checker, helper, numpy_helper, save

    layers, _ = load_net(args.nets / f"{args.net}.npz")
    nodes, weights, value = [], [], "x"
    for k, (W, b) in enumerate(layers):
        last = k == len(layers) - 1
        weights += [numpy_helper.from_array(W, f"W{k}"), numpy_helper.from_array(b, f"b{k}")]
        output = "logits" if last else f"z{k}"
        nodes.append(helper.make_node("Gemm", [value, f"W{k}", f"b{k}"], [output], transB=1))
        value = output
        if not last:
            nodes.append(helper.make_node("Relu", [value], [f"a{k}"]))
            value = f"a{k}"
    inputs, outputs = layers[0][0].shape[1], layers[-1][0].shape[0]
    graph = helper.make_graph(
        nodes,
        args.net,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", inputs])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", outputs])],
        weights,
    )
    # opset 13 with IR 8 is old enough for every reader in use and has all that is needed here
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    save(model, args.nets / f"{args.net}.onnx")
    print(f"{args.net}.onnx written")


def print_table(args: argparse.Namespace) -> None:
    print("| network | seed | test accuracy | weights below 0.001 |")
    print("|---|---|---|---|")
    for path in sorted(args.nets.glob("mnist*.npz")):
        layers, meta = load_net(path)
        weights = np.concatenate([W.ravel() for W, _ in layers])
        small = float(np.mean(np.abs(weights) < 1e-3))  # Adam leaves what l1 removes tiny, not exactly zero
        print(f"| {path.stem} | {meta['seed']} | {meta['accuracy']:.4f} | {small:.0%} |")


# --- command line ---------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the networks and digits shipped with layercert.")
    steps = parser.add_subparsers(required=True, metavar="STEP")

    step = steps.add_parser("train", help="train networks and save them as .npz")
    step.add_argument("--mnist", type=Path, required=True, help="folder with the four MNIST idx files")
    step.add_argument("--out", type=Path, required=True, help="folder for the .npz files")
    step.add_argument("--sizes", nargs="+", required=True, metavar="SIZE", help="2x10: 2 hidden layers of 10")
    step.add_argument("--family", choices=[*L1_WEIGHT, "both"], default="both", help="with or without l1 term")
    step.add_argument("--classes", choices=list(TASKS), default="17", help="digits 1 and 7, or all ten")
    step.add_argument("--epochs", type=int, default=10)
    step.add_argument("--seed", type=int, default=0)
    step.add_argument("--retries", type=int, default=0, help=f"more seeds while accuracy < {COLLAPSED}")
    step.set_defaults(run=train_and_save)

    step = steps.add_parser("digits", help="pick test digits which all networks of a folder get right")
    step.add_argument("--mnist", type=Path, required=True, help="folder with the four MNIST idx files")
    step.add_argument("--nets", type=Path, required=True, help="folder of the networks and the new file")
    step.add_argument("--classes", choices=list(TASKS), default="17", help="digits 1 and 7, or all ten")
    step.add_argument("--per-class", type=int, default=50)
    step.add_argument("--seed", type=int, default=0)
    step.set_defaults(run=save_digits)

    step = steps.add_parser("onnx", help="write a trained network as ONNX, next to its .npz")
    step.add_argument("--nets", type=Path, required=True, help="folder of the networks")
    step.add_argument("--net", required=True, metavar="NAME", help="such as mnist17_l1_2x20")
    step.set_defaults(run=save_onnx)

    step = steps.add_parser("table", help="print seeds and test accuracies as a Markdown table")
    step.add_argument("--nets", type=Path, required=True, help="folder of the networks")
    step.set_defaults(run=print_table)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
