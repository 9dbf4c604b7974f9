"""ReLU networks: immutable affine + ReLU layers, in the notation of the paper (eq. 2).

    x^0 = x;  z^{i+1} = W^i x^i + b^i;  x^i = relu(z^i);  f(x) = W^L x^L + b^L

The network *means* its stored weights as real numbers; float32 weights are widened to float64 without change.
A large matrix of few entries (a convolution) is kept sparse; `weights` gives all of them dense, as long as they fit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from layercert import linear_maps
from layercert.arrays import EPS, LinearMap, Matrix, Signs, Sparse, Vector
from layercert.errors import InputError, ModelError, OptionError
from layercert.forward_errors import float32_error, float64_error
from layercert.heads import TwoScores, after_sigmoid, is_sigmoid, score_of, two_rows
from layercert.linear_maps import dense, dense_bytes, frozen, frozen_sparse
from layercert.rationals import forward
from layercert.shapes import flattened, image_shape
from layercert.system.files import whole_file

if TYPE_CHECKING:
    from layercert.compiled.packed import PackedNetwork

#: Sparse layers are made dense for the exact searches up to this many bytes in all.
DENSE_BYTES = 2**28
#: The parts of a sparse matrix, and the facts about a model, that stand in a file beside the plain arrays.
SPARSE_PARTS = ("data", "indices", "indptr", "shape")
FACTS = ("input_shape", "input_range", "dropped", "threshold", "input_names")

#: Where a network keeps the last point of which it knows the outputs exactly, and these.
SETTLED = "_settled"


@dataclass(frozen=True, eq=False)
class Network:
    """A ReLU classifier with L hidden layers; weights[i] has shape (n_{i+1}, n_i).

    Attributes:
        maps: W^0..W^L as stored, dense or sparse.
        biases: b^0..b^L.
        source: Where it was read from.
        runtime: The model's own (onnxruntime, PyTorch), asked whether a witness holds there too.
        dropped: An order-preserving operation the reader left out at the end, by name: outputs are then logits.
        input_shape: The shape of one input in the model's file, () where the source has none.
        input_range: What the model itself clips its input to; the layers do so too. Two numbers; an interval per input
            where a question with weights has scaled them.
        threshold: With a single output: above it the class is 1, else 0.
        input_names: Names of the inputs (columns of a table), () where the source has none.
    """

    maps: tuple[LinearMap, ...]
    biases: tuple[Vector, ...]
    source: str = "arrays"
    runtime: Callable[[Vector], Vector | None] | None = None
    dropped: str = ""
    input_shape: tuple[int, ...] = ()
    input_range: tuple[float, float] | tuple[Vector, Vector] | None = None
    threshold: float = 0.0
    input_names: tuple[str, ...] = ()

    @staticmethod
    def from_arrays(
        weights: Sequence[ArrayLike | Sparse], biases: Sequence[ArrayLike], source: str = "arrays"
    ) -> Network:
        """A network from its own numbers, taken exactly.

        Args:
            weights: W^0..W^L, each of shape (out, in). Those of scipy.sparse stay sparse where that pays.
            biases: b^0..b^L.
            source: What messages call it.

        Returns:
            The network, immutable.

        Raises:
            ModelError: The shapes do not fit together, or a number is not finite.
        """
        if len(weights) == 0 or len(weights) != len(biases):
            raise ModelError(
                "a network needs as many weight matrices as bias vectors, and at least one; "
                f"got {len(weights)} and {len(biases)}"
            )
        Ws: list[LinearMap] = []
        bs: list[Vector] = []
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            W = frozen_sparse(weight, f"weights[{i}]") if issparse(weight) else frozen(weight, f"weights[{i}]")
            b = frozen(bias, f"biases[{i}]")
            if W.ndim != 2 or 0 in W.shape:
                raise ModelError(f"weights[{i}] must be a non-empty matrix (out, in), got shape {W.shape}")
            if b.shape != (W.shape[0],):
                raise ModelError(
                    f"biases[{i}] must have shape ({W.shape[0]},) to fit weights[{i}] of shape {W.shape}, "
                    f"got {b.shape}; is a matrix transposed? weights are (out, in)"
                )
            if Ws and W.shape[1] != Ws[-1].shape[0]:
                raise ModelError(
                    f"layer {i} expects {W.shape[1]} inputs, layer {i - 1} produces {Ws[-1].shape[0]}; "
                    "weights are (out, in), did the importer drop a Flatten?"
                )
            Ws.append(W)
            bs.append(b)
        return Network(tuple(Ws), tuple(bs), source)

    @property
    def L(self) -> int:
        """Number of hidden (ReLU) layers."""
        return len(self.maps) - 1

    @property
    def inputs(self) -> int:
        """n_0, the length of an input."""
        return int(self.maps[0].shape[1])

    @property
    def classes(self) -> int:
        """The number of outputs."""
        return int(self.maps[-1].shape[0])

    @property
    def widths(self) -> tuple[int, ...]:
        """n_1..n_L, the neurons of each hidden layer."""
        return tuple(int(W.shape[0]) for W in self.maps[:-1])

    @property
    def neurons(self) -> int:
        """All ReLUs of all layers."""
        return sum(self.widths)

    @property
    def is_sparse(self) -> bool:
        """Is any layer kept sparse?"""
        return any(issparse(W) for W in self.maps)

    @property
    def fits_dense(self) -> bool:
        """Can `weights` be had: are there no sparse layers, or none too large to be made dense?"""
        return not self.is_sparse or sum(dense_bytes(W) for W in self.maps) <= DENSE_BYTES

    @cached_property
    def weights(self) -> tuple[Matrix, ...]:
        """W^0..W^L as dense matrices; ModelError where sparse layers would need too much memory for that."""
        if not self.fits_dense:
            i = max(range(self.L + 1), key=lambda k: dense_bytes(self.maps[k]))
            rows, columns = self.maps[i].shape
            need, most = (n / 2**20 for n in (dense_bytes(self.maps[i]), DENSE_BYTES))
            raise ModelError(
                f"layer {i} is sparse, {rows} x {columns}, and would take {need:.0f} MiB as a dense matrix, which this "
                f"needs (all layers together may take {most:.0f} MiB); use 'adaptive' or 'large', or a smaller network"
            )
        return tuple(dense(W) for W in self.maps)

    @cached_property
    def packed(self) -> PackedNetwork:
        """The hidden layers as kernels take them; layers with many zeros are sparse there, however they are stored."""
        from layercert.compiled.packed import pack  # the compiler takes a while to load, and not everybody needs it

        return pack(self.maps, self.biases)

    @cached_property
    def sha256(self) -> str:
        """Hash of the shapes and weights, the network's identity in records and certificates."""
        digest = hashlib.sha256()
        for array in (*self.maps, *self.biases):
            digest.update(repr(tuple(int(n) for n in array.shape)).encode())
            # some rows at a time: the hash does not say how a layer is stored
            step = len(array) if isinstance(array, np.ndarray) else max(1, linear_maps.SPARSE_PLACES // array.shape[1])
            for start in range(0, array.shape[0], step):
                digest.update(np.ascontiguousarray(dense(array[start : start + step]), dtype="<f8").tobytes())
        return digest.hexdigest()

    def __call__(self, x: ArrayLike) -> Vector:
        """f(x), the logits, for a point or for a batch of points (the last axis is the input).

        What overflows is infinite or no number, and no warning says so once more.
        """
        h = np.asarray(x, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for W, b in zip(self.maps[:-1], self.biases[:-1], strict=True):
                h = np.maximum(h @ W.T + b, 0.0)
            return np.asarray(h @ self.maps[-1].T + self.biases[-1])

    def forward_error(self, x: Vector, inherited: Vector | float = 0.0) -> Vector:
        """A bound of the error of each output of a float64 forward pass at x, underflow included.

        Args:
            x: A point.
            inherited: What x itself may be wrong by, coordinate by coordinate.

        Returns:
            One number per output; one that is not finite says that values overflow.
        """
        return float64_error(self.maps, self.biases, x, inherited)

    def float32_error(self, x: Vector, reach: Vector | float = 0.0) -> Vector:
        """How far float32 inference may be from the real-number network, whatever the order of its sums.

        Args:
            x: A point, rounded to float32 first.
            reach: The bound holds at all points whose coordinates are within this of x.

        Returns:
            One number per output.
        """
        return float32_error(self.maps, self.biases, x, reach)

    def exact(self, x: Vector | Sequence[Fraction]) -> list[Fraction]:
        """f(x) in rational arithmetic: the network as a function of real numbers. Slow; it settles ties.

        Args:
            x: A point, of floats or rationals.

        Returns:
            The outputs, exactly.
        """
        if not isinstance(x, np.ndarray):
            return forward(self.maps, self.biases, x)
        # a tie at x is settled for its class, as a witness, and as a tie: the same half a second thrice
        point, settled = (x.dtype.str, x.tobytes()), vars(self).get(SETTLED)
        if settled is None or settled[0] != point:
            vars(self)[SETTLED] = settled = (point, forward(self.maps, self.biases, x))
        return list(settled[1])

    def classify(self, x: Vector) -> int:
        """The class of x for the network as a function of real numbers; where float64 cannot tell, rationals do.

        Args:
            x: A point.

        Returns:
            The number of the largest output; of a tie, the first.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            f, error = self(x), self.forward_error(x)
            best = int(f.argmax())
            slip = 1.01 * error + 4.0 * EPS * np.abs(f)  # the sums below are rounded too
            sure = f + slip < f[best] - slip[best]  # a NaN is not
        if np.delete(sure, best).all():
            return best
        exact = self.exact(x)
        return exact.index(max(exact))

    def preactivations(self, x: Vector) -> list[Vector]:
        """z^1..z^L at x.

        Args:
            x: A point.

        Returns:
            The inputs of all ReLUs, a vector per layer.
        """
        z: list[Vector] = []
        h = x
        for W, b in zip(self.maps[:-1], self.biases[:-1], strict=True):
            z.append(np.asarray(W @ h + b))
            h = np.maximum(z[-1], 0.0)
        return z

    def pattern(self, x: Vector) -> tuple[Signs, ...]:
        """The activation pattern of x (Definition 3.5).

        Args:
            x: A point.

        Returns:
            A vector of signs per layer: +1 where z >= 0, -1 elsewhere.
        """
        return tuple(np.where(z >= 0, 1, -1).astype(np.int8) for z in self.preactivations(x))

    def linear_piece(self, signs: Sequence[Signs]) -> tuple[Matrix, Vector]:
        """The affine map of f on the region of a full pattern (eq. 5).

        Args:
            signs: The pattern, a vector per layer.

        Returns:
            F and f0 with f(v) = F v + f0.
        """
        if not self.fits_dense or self.classes <= self.inputs:  # the few rows of the output cost the fewest products
            return self._piece_from_the_end(signs)
        F, f0 = self.weights[0], self.biases[0]
        for s, W, b in zip(signs, self.weights[1:], self.biases[1:], strict=True):
            on = W * (s > 0)
            F, f0 = on @ F, on @ f0 + b
        return F, f0

    def _piece_from_the_end(self, signs: Sequence[Signs]) -> tuple[Matrix, Vector]:
        """The same with the few rows of the output on the left, so that no hidden layer becomes dense."""
        F, f0 = dense(self.maps[-1]), self.biases[-1]
        for s, W, b in zip(reversed(signs), self.maps[-2::-1], self.biases[-2::-1], strict=True):
            on = F * (s > 0)
            F, f0 = np.asarray(on @ W), on @ b + f0
        return F, f0

    def point(self, x: ArrayLike, what: str = "input") -> Vector:
        """x as a checked float64 vector of the right length.

        Args:
            x: An array or tensor, flat or in the model's own shape, with or without its batch axis of one.
            what: What messages call it.

        Returns:
            A copy.

        Raises:
            InputError: It has another length or another shape, or numbers that are not finite and real.
        """
        v = flattened(x, self.inputs, self.input_shape, what)
        if not np.isfinite(v).all():
            bad = int(np.flatnonzero(~np.isfinite(v))[0])
            raise InputError(f"the {what} has {v[bad]} at position {bad}; every entry must be a finite number")
        return v

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The model's own shape of one input without its batch axis, () for a vector or where it is not known."""
        return image_shape(self.input_shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The network as named arrays: W0, b0, W1, .., a sparse W1 as W1_data, W1_indices, W1_indptr, W1_shape.

        Returns:
            These arrays, and what else is known of the model, but for its runtime.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for i, (W, b) in enumerate(zip(self.maps, self.biases, strict=True)):
            if isinstance(W, np.ndarray):
                arrays[f"W{i}"] = W
            else:
                arrays.update({f"W{i}_{part}": np.asarray(getattr(W, part)) for part in SPARSE_PARTS})
            arrays[f"b{i}"] = b
        facts = {name: getattr(self, name) for name in FACTS}
        return arrays | {name: np.array(fact) for name, fact in facts.items() if fact}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to an .npz file, from which `load` gives back the same one, bit for bit.

        The file is there as a whole or not at all. A model's own runtime (onnxruntime, PyTorch) does not go with it.

        Args:
            path: The file; its name must end in .npz.

        Raises:
            OptionError: Another suffix, or the file cannot be written.
        """
        target = Path(path)
        if target.suffix.lower() != ".npz":
            raise OptionError(f"a network is saved as an .npz file, got {str(target)!r}; end the file name in .npz")
        try:
            with whole_file(target) as file:
                np.savez(file, allow_pickle=False, **self.arrays())
        except OSError as error:
            raise OptionError(
                f"the network cannot be saved as {str(target)!r}: {error.strerror or error}; "
                f"is {str(target.resolve().parent)!r} a folder that you may write to?"
            ) from None

    @cached_property
    def classifier(self) -> Network:
        """The network itself, or for a single output f the one of two classes with the outputs (threshold, f)."""
        if self.classes > 1:
            return self
        W, b = two_rows(self.maps[-1], self.biases[-1], self.threshold)
        limit = after_sigmoid(self.threshold) if is_sigmoid(self.dropped) else self.threshold
        runtime = None if self.runtime is None else TwoScores(self.runtime, limit)
        return replace(self, maps=(*self.maps[:-1], W), biases=(*self.biases[:-1], b), runtime=runtime, threshold=0.0)

    def with_threshold(self, threshold: float) -> Network:
        """The same network of a single output with another threshold between its two classes.

        Args:
            threshold: In the unit of the model's own output: a probability where it ends in a Sigmoid, else a score.

        Returns:
            The network; its class is 1 where the model's output is above the threshold, else 0.

        Raises:
            OptionError: The network has several outputs, or the threshold is out of range.
        """
        return replace(self, threshold=score_of(threshold, self.dropped, self.classes))

    def __getstate__(self) -> dict[str, Any]:
        made = ("weights", "classifier", "packed", SETTLED)
        return {name: value for name, value in vars(self).items() if name not in made}

    def __repr__(self) -> str:
        sizes = "-".join(str(n) for n in (self.inputs, *self.widths, self.classes))
        return f"Network({sizes}, from {self.source})"
