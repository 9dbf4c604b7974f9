"""A model's own runtime: what onnxruntime or PyTorch answers for a point, in the model's own float type.

Used to try witnesses where they will be used. A runtime object remembers only the file or the module; nothing is loaded
before the first question.
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.errors import ModelError
from layercert.heads import after_sigmoid, is_sigmoid
from layercert.network import Network
from layercert.system.gz import is_gzip, read_gzip

log = logging.getLogger(__name__)

#: Outputs of a model and of what was read may differ by this much, relative to the largest and to 1.
ROOM = 0.05


@dataclass(eq=False)
class OnnxRuntime:
    """The outputs of an ONNX file under onnxruntime; None when that package is not installed or cannot run the file."""

    path: Path
    name: str = "onnxruntime"
    output: str | None = None  # which output is asked for; the first one by default
    last: bool = False  # of a pair (1 - p, p) only p is the network's
    _session: Any = field(default=None, repr=False)

    def __call__(self, v: Vector) -> Vector | None:
        if self._session is None:
            try:
                import onnxruntime
            except ImportError:
                return None
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4  # errors are told by us
            options.intra_op_num_threads = 1  # a point at a time is no work for a pool that spins beside a search
            try:
                model = read_gzip(self.path) if is_gzip(self.path) else str(self.path)
                self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # its own many kinds; without it the answer stands all the same
                log.warning("onnxruntime cannot load %s: %s", self.path, error)
                self._session = False
        if self._session is False:
            return None
        spec = self._session.get_inputs()[0]
        shape = [n if isinstance(n, int) else 1 for n in spec.shape]
        kind = {"tensor(double)": np.float64, "tensor(float16)": np.float16}.get(spec.type, np.float32)
        try:
            asked = None if self.output is None else [self.output]
            batch = max(1, math.prod(shape) // v.size)
            points = np.random.default_rng(0).normal(size=(batch, v.size))  # a model for several at a time gets company
            points[0] = v
            with np.errstate(over="ignore"):  # beyond float32 it is given an infinite input
                points = points.astype(kind)
            answer = self._session.run(asked, {spec.name: points.reshape(shape)})[0]
            if isinstance(answer, list) and answer and isinstance(answer[0], dict):  # of a ZipMap: names and numbers
                answer = list(answer[0].values())
            scores = np.asarray(answer, dtype=np.float64).reshape(-1)
            scores = scores[: len(scores) // batch] if batch > 1 else scores
        except Exception as error:
            log.warning("onnxruntime cannot run %s: %s", self.path, error)
            self._session = False
            return None
        return scores[-1:] if self.last else scores

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_session": None}


@dataclass(eq=False)
class TorchRuntime:
    """The outputs of a PyTorch module in evaluation mode, in its own float type."""

    module: Any
    shape: tuple[int, ...] = ()  # of one input with its batch axis
    name: str = "PyTorch"

    def __call__(self, v: Vector) -> Vector | None:
        import torch

        kind = next((p.dtype for p in self.module.parameters()), torch.float32)
        training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                answer = self.module(torch.as_tensor(v).to(kind).reshape(self.shape or (1, -1)))
        except RuntimeError:  # a module whose Flatten wants images, of a shape that nobody said
            return None
        finally:
            self.module.train(training)
        return np.asarray(answer.double().numpy(), dtype=np.float64).reshape(-1)


def confirm(network: Network, name: str) -> None:
    """Ask the model's own runtime at two points whether the network was read rightly, up to any rounding.

    The readers are tested operation by operation; this guards against what nobody thought of.
    """
    for v in (np.zeros(network.inputs), np.random.default_rng(0).normal(size=network.inputs)):
        with warnings.catch_warnings():  # what the model says of itself is not about reading it
            warnings.simplefilter("ignore")
            given = None if network.runtime is None else network.runtime(v)
        if given is None or not np.isfinite(given).all():
            continue
        mine = network(v)
        room = ROOM * (1.0 + np.abs(given).max())
        if not _agrees(mine, given, network.dropped, room) and not _is_rough(network, v, mine, room):
            raise ModelError(
                f"the network read from {name} differs from the model itself: at some point it gives "
                f"{np.array2string(mine[:4], precision=4)}, {getattr(network.runtime, 'name', 'the model')} gives "
                f"{np.array2string(given[:4], precision=4)}; this is a fault of the reader, please report it"
            )


def _agrees(mine: Vector, given: Vector, dropped: str, room: float) -> bool:
    """Are these the same outputs, but for the operation that was left out?"""
    candidates = [mine]
    if is_sigmoid(dropped):
        candidates = [np.array([after_sigmoid(score) for score in mine])]
    elif dropped:  # a Softmax or its logarithm
        shifted = mine - mine.max()
        candidates = [np.exp(shifted) / np.exp(shifted).sum(), shifted - np.log(np.exp(shifted).sum())]
    if any(c.shape == given.shape and bool((np.abs(c - given) <= room).all()) for c in candidates):
        return True
    # after a Softmax there may be another one, or a choice of classes: their order is what counts
    return bool(dropped) and mine.shape == given.shape and bool((np.diff(given[np.argsort(mine)]) >= -1e-6).all())


def _is_rough(network: Network, v: Vector, mine: Vector, room: float) -> bool:
    """Is float32 too coarse for the network to tell how it was read?"""
    h = v.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (W, b) in enumerate(zip(network.maps, network.biases, strict=True)):
            h = W.astype(np.float32) @ h + b.astype(np.float32)
            h = np.maximum(h, np.float32(0)) if i < network.L else h
        return not bool((np.abs(h - mine) <= room / 100.0).all())  # a NaN is rough, too
