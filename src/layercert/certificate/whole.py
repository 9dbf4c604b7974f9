"""Certificates about whole numbers and alternatives among the inputs: a tree of cuts, and an ordinary certificate for
each box that is left.

The tree says how the admissible points were divided: by v_i <= cut or v_i >= cut + 1 for a whole number, by which
member of a group is 1. For a box with the point c nearest to x, every point v of it has
||v - x||^p >= ||v - c||^p + ||c - x||^p (the larger one for p = inf): if its certificate says that nothing unsafe is
within r' of c, nothing unsafe of the box is within r of x, provided that r'^p + ||c - x||^p >= r^p (r' >= r, or else
||c - x|| > r, for p = inf). Balls have their surface: a box that is r away and no more needs a certificate.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.arrays import Vector
from layercert.certificate.claim import Certificate
from layercert.certificate.rejected import Rejected
from layercert.certificate.witness import MOST_POWER
from layercert.errors import InputError
from layercert.network import Network
from layercert.system.files import whole_file

#: Kinds of nodes.
LEAF, AXIS, GROUP = 0, 1, 2
#: For p that is not whole, powers are computed in floats and must be above by this much, relative.
SPARE = 1e-10
FORMAT = "layercert certificate of whole numbers"


@dataclass(frozen=True, eq=False)
class WholeCertificate:
    """No admissible point of the domain within the claim's radius of x is unsafe; its witness is one that is.

    Attributes:
        claim: What is claimed; its trees say nothing.
        integer: Positions of inputs that are whole numbers.
        groups: Groups of inputs of which exactly one is 1 and the others are 0.
        kind: The tree in preorder: 0 a leaf, 1 a cut of a whole number (first part: <= cut), 2 a group (a part for each
            member that can be 1).
        index: Which input, or which group.
        cut: Where a whole number is cut.
        parts: A certificate per leaf, None for a box that is farther away than the radius.
    """

    claim: Certificate
    integer: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    kind: NDArray[np.int32]
    index: NDArray[np.int32]
    cut: Vector
    parts: tuple[Certificate | None, ...]

    @property
    def radius(self) -> float:
        """The claim: nothing admissible and unsafe within it."""
        return self.claim.radius

    @property
    def upper(self) -> float:
        """The distance of the witness, inf without one."""
        return self.claim.upper

    @property
    def witness(self) -> Vector | None:
        """An admissible unsafe point, if one is known."""
        return self.claim.witness

    @property
    def leaves(self) -> int:
        """Leaves of all trees of all boxes."""
        return sum(part.leaves for part in self.parts if part is not None)

    def save(self, path: str | Path) -> None:
        """Write the certificate as one .npz file, as a whole or not at all; each box's certificate is a file inside.

        Args:
            path: The file.

        Raises:
            InputError: The file cannot be written.
        """
        header = {"format": FORMAT, "version": 1, "integer": self.integer, "groups": self.groups}
        arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        arrays |= {"kind": self.kind, "index": self.index, "cut": self.cut, "claim": packed(self.claim)}
        arrays |= {f"part{i}": packed(part) for i, part in enumerate(self.parts) if part is not None}
        target = Path(path)
        try:
            with whole_file(target) as file:
                np.savez(file, allow_pickle=False, **arrays)
        except OSError as error:
            raise InputError(f"cannot write the certificate to '{target}': {error.strerror or error}") from None


def packed(certificate: Certificate) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **certificate.arrays())
    return np.frombuffer(buffer.getvalue(), np.uint8)


def unpacked(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], read: Callable[[bytes], Certificate]
) -> WholeCertificate:
    """The certificate that `save` wrote; `read` is the reader of ordinary ones. ValueError or KeyError otherwise."""
    if header["version"] != 1:
        raise ValueError(f"it has version {header['version']}, this program reads version 1")
    kind, index = (np.asarray(arrays[name]) for name in ("kind", "index"))
    if kind.ndim != 1 or kind.shape != index.shape or kind.dtype.kind not in "iu" or index.dtype.kind not in "iu":
        raise ValueError("its tree is not made of whole numbers")
    cut = np.asarray(arrays["cut"], dtype=np.float64)
    if cut.shape != kind.shape:
        raise ValueError("its tree has not one cut per node")
    leaves = int((kind == LEAF).sum())
    parts = [read(arrays[f"part{i}"].tobytes()) if f"part{i}" in arrays else None for i in range(leaves)]
    return WholeCertificate(
        claim=read(arrays["claim"].tobytes()),
        integer=tuple(int(i) for i in header["integer"]),
        groups=tuple(tuple(int(i) for i in group) for group in header["groups"]),
        kind=kind.astype(np.int32),
        index=index.astype(np.int32),
        cut=cut,
        parts=tuple(parts),
    )


def prove_whole(
    network: Network, certificate: WholeCertificate, prove: Callable[[Certificate], tuple[bool, str, int]]
) -> int:
    """Everything but the claim's own form and witness: the number of leaves. `prove` checks an ordinary certificate and
    says whether it holds, why not, and how many leaves it has."""
    claim = certificate.claim
    _check_form(network, certificate)
    leaves, waiting = 0, iter(certificate.parts)
    for low, high in _boxes(certificate):
        part = next(waiting, None)
        c = np.clip(claim.x, low, high)
        if part is None:
            if not far_enough(claim, c, None):
                raise Rejected("a box without a certificate is nearer than the radius")
            continue
        same = ("network", "p", "label", "asked")
        if any(getattr(part, name) != getattr(claim, name) for name in same) or not _same_numbers(part, claim):
            raise Rejected("the certificate of a box is about another question")
        if not np.array_equal(part.x, c) or part.domain is None or not _holds(part.domain, low, high):
            raise Rejected("the certificate of a box is about another box")
        ok, why, count = prove(part)
        if not ok:
            raise Rejected(f"a box is not proved: {why}")
        if part.radius == 0 and part.witness is not None:  # c may be unsafe itself
            raise Rejected("the certificate of a box is about its witness alone")
        if not reaches(claim, part, low, high):
            raise Rejected("the certificate of a box does not reach far enough")
        leaves += count
    return leaves


def _check_form(network: Network, certificate: WholeCertificate) -> None:
    n, x = network.inputs, certificate.claim.x
    if not certificate.kind.shape == certificate.index.shape == certificate.cut.shape:
        raise Rejected("the tree of boxes has not one cut per node")
    members = [i for group in certificate.groups for i in group]
    if len(set(members)) != len(members) or any(not 0 <= i < n for i in (*members, *certificate.integer)):
        raise Rejected("the whole numbers and alternatives are not inputs of the network")
    for v in (x, *(w for w in (certificate.witness,) if w is not None)):
        whole = v[list(certificate.integer)]
        if (whole != np.floor(whole)).any() or any(
            sorted(v[list(group)].tolist()) != [0.0] * (len(group) - 1) + [1.0] for group in certificate.groups
        ):
            raise Rejected("x or the witness is not whole where it has to be")


def _boxes(certificate: WholeCertificate) -> Iterator[tuple[Vector, Vector]]:
    """The boxes of the leaves in preorder, from the cuts alone."""
    claim = certificate.claim
    n = len(claim.x)
    low, high = claim.domain if claim.domain is not None else (np.full(n, -np.inf), np.full(n, np.inf))
    low, high = low.copy(), high.copy()
    whole = [*certificate.integer, *(i for group in certificate.groups for i in group)]
    low[whole], high[whole] = np.ceil(low[whole]), np.floor(high[whole])
    for group in certificate.groups:
        low[list(group)] = np.maximum(low[list(group)], 0.0)
        high[list(group)] = np.minimum(high[list(group)], 1.0)
    stack = [(low, high)]
    for kind, index, cut in zip(certificate.kind.tolist(), certificate.index.tolist(), certificate.cut, strict=True):
        if not stack:
            raise Rejected("the tree of boxes is complete before its end")
        low, high = stack.pop()
        if kind == LEAF:
            yield low, high
        elif kind == AXIS and index in certificate.integer and math.isfinite(cut) and cut == math.floor(cut):
            below, above = (low, high.copy()), (low.copy(), high)
            below[1][index], above[0][index] = min(high[index], cut), max(low[index], cut + 1.0)
            if abs(cut) >= 2.0**52:
                raise Rejected("a cut is beyond the whole numbers that float64 tells apart")
            stack += [above, below]
        elif kind == GROUP and 0 <= index < len(certificate.groups):
            stack += reversed(list(_alternatives(low, high, certificate.groups[index])))
        else:
            raise Rejected("a node of the tree of boxes is neither a leaf nor a cut")
    if stack:
        raise Rejected(f"the tree of boxes ends with {len(stack)} boxes missing")


def _alternatives(low: Vector, high: Vector, group: tuple[int, ...]) -> Iterator[tuple[Vector, Vector]]:
    """A box per member of the group that can be 1 in it."""
    for k in group:
        a, b = low.copy(), high.copy()
        for j in group:
            a[j], b[j] = max(low[j], float(j == k)), min(high[j], float(j == k))
        if (a <= b).all():
            yield a, b


def _holds(domain: tuple[Vector, Vector], low: Vector, high: Vector) -> bool:
    """Is the box from low to high inside the domain?"""
    fits = all(end.shape == low.shape for end in domain)
    return fits and bool(((domain[0] <= low) & (high <= domain[1])).all())


def _same_numbers(part: Certificate, claim: Certificate) -> bool:
    if (part.weights is None) != (claim.weights is None) or len(part.clauses) != len(claim.clauses):
        return False
    if part.weights is not None and claim.weights is not None and not np.array_equal(part.weights, claim.weights):
        return False
    return all(
        np.array_equal(C, D) and np.array_equal(c, d) and s == t
        for (C, c, s), (D, d, t) in zip(part.clauses, claim.clauses, strict=True)
    )


def _moved(claim: Certificate, a: Vector, b: Vector) -> list[Fraction]:
    weights = np.ones_like(a) if claim.weights is None else claim.weights
    return [
        abs(Fraction(s) - Fraction(t)) * Fraction(w)
        for s, t, w in zip(a.tolist(), b.tolist(), weights.tolist(), strict=True)
    ]


def reaches(claim: Certificate, part: Certificate, low: Vector, high: Vector) -> bool:
    """Does the proof of a box from low to high go far enough: around its nearest point, or through all of it?"""
    return far_enough(claim, part.x, part.radius) or _covers(claim, part, low, high)


def far_enough(claim: Certificate, c: Vector, radius: float | None) -> bool:
    """Is every unsafe point of a box whose nearest point is c more than r away from x?

    Nothing unsafe is within the radius of c, its surface included; None: nothing is known around c. In rational
    numbers where p allows.
    """
    if claim.radius == 0:
        return True  # nothing is claimed but the witness, or x
    away, r = _moved(claim, c, claim.x), Fraction(claim.radius)
    if math.isinf(claim.p):
        return max(away, default=Fraction(0)) > r or (radius is not None and Fraction(radius) >= r)
    if claim.p.is_integer() and claim.p <= MOST_POWER:
        k = int(claim.p)
        missing = r**k - sum(size**k for size in away)
        return missing < 0 or (radius is not None and Fraction(radius) ** k >= missing)
    shares = [_share(size, claim.radius) for size in (Fraction(radius or 0.0), *away)]
    return max(shares) >= 1.0 + SPARE or math.fsum(share**claim.p for share in shares) >= 1.0 + SPARE * claim.p


def _share(size: Fraction, radius: float) -> float:
    """size / radius, or 2 where it is more: powers of it stay within float64."""
    return float(min(size / Fraction(radius), Fraction(2))) if radius else 2.0


def _covers(claim: Certificate, part: Certificate, low: Vector, high: Vector) -> bool:
    """Is no point of the box farther from the part's x than its radius?"""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return False
    # of rounded differences the larger one may be that of the nearer end
    ends = zip(_moved(claim, low, part.x), _moved(claim, high, part.x), strict=True)
    corner = [far for far in map(max, ends) if far]
    if math.isinf(claim.p):
        return max(corner, default=Fraction(0)) <= Fraction(part.radius)
    if claim.p.is_integer() and claim.p <= MOST_POWER:
        return sum(size ** int(claim.p) for size in corner) <= Fraction(part.radius) ** int(claim.p)
    shares = [_share(size, part.radius) for size in corner]
    return math.fsum(share**claim.p for share in shares) <= 1.0 - SPARE * claim.p
