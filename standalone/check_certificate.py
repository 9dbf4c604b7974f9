#!/usr/bin/env python3
"""Check a LayerCert certificate of format 2 with Python and numpy alone.

    python check_certificate.py PROOF.npz NETWORK.npz [--exact]

Exit code 0: proved, and what; 1: not proved, and why; 2: a file cannot be read. NETWORK.npz holds W0, b0, W1, b1, ..
(`layercert export MODEL NETWORK.npz` writes it). Written from docs/certificate-format.md, where the theorems are.

The idea. A point v = x + w is unsafe when C f(v) <= d. With mu >= 0 it has F = mu.(C f - d) <= 0. Going down the layers
from F, replace A_j relu(z_j) by something that is no larger: alpha z_j with 0 <= alpha <= 1 where A_j > 0, the chord
over [lo, hi] where A_j < 0 (or, in part, a facet: an upper line over the inputs of z_j), z_j or 0 where the sign of z_j
is known. That leaves g.w + s <= F <= 0. If g.w + s > 0 on the whole ball, nothing unsafe is there. A tree of cases
(z_j >= 0 or z_j <= 0; boxes of inputs) covers all points. Any numbers in range will do. Chords get shorter by a descent
from t z_i + pull F (t = 1 or -1): h.w + c <= t z_i at unsafe points, so for every lam >= 0

    t z_i >= h.w + c + lam (g.w + s) >= c + lam s - sigma(h + lam g),      sigma(t) = max of -t.w on ball and box.

Arithmetic. With --exact nothing is lost to rounding: numbers are Python's whole numbers of units 2^-K, so small that
all weights are whole. Products of m of them count units 2^-mK ("in units m"); sums are taken at equal m. Only what may
be rounded is, in a sound direction: bounds, rooms and roots outward, multipliers down. Floats have a unit of 1. There a
sum of n terms errs by less than n u / (1 - n u) times the sum of the absolute terms, u = 2^-53, in any order; `eps` is
that for more terms than any sum here has. The page says what descents and facets err by. Underflow takes below TINY.
"""

import hashlib
import json
import math
import sys
import zipfile
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

TINY, LARGE, MOST, BYTES = 1e-150, 1e75, 1e30, 1 << 30  # files that unpack to more bytes are not read


class NotProved(Exception):  # noqa: N818 - an outcome
    """The certificate proves nothing, and why."""


def need(condition, reason):
    if not condition:
        raise NotProved(reason)


def read(path):
    """All arrays of an .npz, without pickles and without bombs."""
    with zipfile.ZipFile(path) as archive:
        sizes = [member.file_size for member in archive.infolist()]
        if sum(sizes) > BYTES or len(set(archive.namelist())) < len(sizes):
            raise ValueError("it is too large, or has an array twice")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def read_network(path):
    arrays, W, b = read(path), [], []
    while f"b{len(b)}" in arrays:
        name = f"W{len(b)}"
        if name not in arrays:  # compressed rows
            data, at, ends, shape = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr", "shape"))
            arrays[name] = np.zeros(shape)
            arrays[name][np.repeat(np.arange(len(ends) - 1), np.diff(ends)), at] = data
        W, b = [*W, arrays[name].astype(np.float64)], [*b, arrays[f"b{len(b)}"].astype(np.float64)]
    sizes = [W[0].shape[1], *(len(v) for v in b)]
    fit = all(w.shape == (m, n) and v.ndim == 1 for w, v, n, m in zip(W, b, sizes, sizes[1:], strict=False))
    if not fit or not all(np.isfinite(a).all() for a in W + b):
        raise ValueError("its layers do not fit each other, or a weight is not a finite number")
    return W, b, float(arrays.get("threshold", 0.0))


def fineness(*arrays):
    """K: all these numbers are whole multiples of 2^-K, and it is 64 larger than that, for what else is to be told."""
    return 64 + max(v.as_integer_ratio()[1].bit_length() for a in arrays for v in np.unique(a).tolist())


def units(a, K):
    """Floats as whole numbers of units 2^-K, rounded down: n 2^(shift - K) with n of 53 bits."""
    part, power = np.frexp(np.asarray(a, dtype=np.float64))
    need(np.isfinite(part).all(), "numbers beyond float64 can occur on this ball")  # as whole numbers they are small
    n, shift = np.ldexp(part, 53).astype(np.int64).astype(object), (power + (K - 53)).astype(object)
    return (n << np.maximum(shift, 0)) >> np.maximum(-shift, 0)


def sparse(w, K):
    """A matrix in units: rows and values of its nonzero entries, column by column; which columns, and their starts."""
    at, rows = np.nonzero(w.T)
    return rows, units(w[rows, at], K), *np.unique(at, return_index=True), w.shape[1]


def times(A, W):
    """A @ W, with W a matrix of floats or a sparse one."""
    if A.dtype != object:
        return A @ W
    rows, values, columns, starts, width = W
    product = np.zeros((len(A), width), dtype=object)
    product[:, columns] = [np.add.reduceat(a[rows] * values, starts) for a in A]
    return product


def down(value):
    """A float64 that is no larger."""
    near = float(min(value, 10**308)) if value > -(10**308) else -math.inf
    return near if near <= value else math.nextafter(near, -math.inf)


def norm(rows, q):
    """The l_q norm of each row, all numbers >= 0: of whole numbers rounded up, of floats to (2 n + 100) roundings."""
    top = rows.max(axis=1)
    if q in (1, math.inf):
        return rows.sum(axis=1) if q == 1 else top
    if rows.dtype != object:  # in units of the largest, lest powers vanish
        return top * ((rows / np.where(top > 0, top, 1.0)[:, None]) ** float(q)).sum(axis=1) ** (1 / float(q))
    if q == 2:
        return np.array([math.isqrt(max(s - 1, 0)) + (s > 0) for s in (rows * rows).sum(axis=1)], dtype=object)
    with localcontext(Context(prec=60)):  # powers are right to 1e-44 for all q below 1e16: 1e-40 is more than enough
        q, more = Decimal(q.numerator) / Decimal(q.denominator), 1 + Decimal(10) ** -40
        sums = [sum((Decimal(v) / Decimal(m)) ** q for v in row if v) for row, m in zip(rows, top, strict=True)]
        return np.array([math.ceil(m * Fraction(s ** (1 / q) * more)) for s, m in zip(sums, top, strict=True)], object)


class Proof:
    """A ball {w : ||weights * w||_p <= r, low <= x + w <= high}, and what is known of a network's neurons on it."""

    def __init__(self, W, b, clauses, x, p, r, low, high, weights, exact, given=None):
        self.inverse = np.array([-down(-1 / Fraction(w)) for w in weights])  # 1 / weights, rounded up
        K = fineness(*W, *b, x, r, self.inverse, *sum(clauses, ())) if exact else None
        self.p, self.r, self.K, self.boxed = p, r, K, bool(np.isfinite([low, high]).any())
        self.q = {1.0: math.inf, math.inf: 1}.get(p) or Fraction(p) / (Fraction(p) - 1)
        self.unit, self.num = (1.0, np.asarray) if K is None else (1 << K, lambda a: units(a, K))
        # rounded up: weights times how far a coordinate can fall and rise, at most r; |w_j|
        rooms = np.nextafter(np.nextafter([x - low, high - x], np.inf) * weights, np.inf)
        self.rooms, far = np.minimum(rooms, r), np.nextafter(r * self.inverse, np.inf)
        self.box = np.clip([np.nextafter(x - far, -np.inf), np.nextafter(x + far, np.inf)], low, high)  # v is in it
        self.L, self.floats, self.net, self.W = len(W) - 1, W, (W, b), W if K is None else [sparse(w, K) for w in W]
        self.b, self.x, self.far = [self.num(v) for v in b], self.num(x), self.num(far)
        self.widths = [len(x)] + [len(v) for v in b[:-1]]
        self.starts = np.cumsum([0, *self.widths[1:]])  # the neurons of layer k = 1, .. begin at starts[k - 1]
        self.part = [slice(0), *map(slice, self.starts[:-1], self.starts[1:])]
        eps = 1.06 / (2.0**53 / (4 * (sum(self.widths) + len(b[-1])) + 256) - 1)
        self.eps, self.tiny, self.slip, large = (eps, TINY, 1e-15, LARGE) if K is None else (0, 0, 0, np.inf)
        growth = np.ones(len(b[-1]))  # of coefficients on their way down
        for w in reversed(W):
            growth = np.maximum(growth, 1.0) @ np.abs(w)
            need((growth < large).all() or K, "products of weights exceed 1e75: try --exact")
        self.start = self.known = np.zeros((3, self.starts[-1]))  # lo, hi, and how it was split (1 on, -1 off, 0 not)
        self.err, self.P = self.num(0 * self.known[0]), [np.abs(x)]  # P bounds |x^k| on the ball
        # more than |W^0_j.w| on the ball; 1e-300 for products that vanish, r may be large
        reach = r * norm(np.abs(W[0]) * self.inverse + 1e-300, self.q) * 1.01 + TINY
        for k in range(1, self.L + 1):  # the start of the page
            M, part = (np.abs(W[k - 1]) @ self.P[k - 1] + np.abs(b[k - 1])) * (1 + 1e-9) + TINY, self.part[k]
            size, slips = (M + reach) * (1 + 1e-9), 3 * M + reach
            need((size < large).all(), "numbers beyond 1e75 can occur on this ball: try --exact")
            self.known[:2, part], sign = [-size, size], [[1.0], [-1.0]]
            self.err[part] = self.num(self.eps * (4 * size + slips) + self.tiny)
            at, side = np.tile(np.arange(part.start, part.stop), 2), np.repeat([1, -1], len(M))
            slopes = 1.0 * (self.known[1:2] > -self.known[:1] * (1 + 1e-9))  # lower lines: that of the nearer side
            self.use(k, at, side, 0.0 * at, 0.0 * at, np.inf, slopes, 0 * slopes, None)
            if given is not None and (k > 1 or p == math.inf):  # intervals; what is known of the box it was cut from
                w, ends = W[k - 1], self.box if k == 1 else np.maximum(self.known[:2, self.part[k - 1]], 0.0)
                ends = [(w != 0) * np.where(w > 0, u, v) for u, v in (ends, ends[::-1])]  # for each entry, its input
                sums = np.array([(w * u).sum(axis=1) for u in ends]) + b[k - 1]
                slip = (eps * size + TINY) * ([u.any(axis=1) for u in ends] | (b[k - 1] != 0))  # sums of zeros are 0
                bounds = sign * self.known[:2, part], sign * sums - slip, sign * given[:, part]
                self.known[:2, part] = given[:, part] = sign * np.maximum.reduce(bounds)
            self.err[part] = self.num(self.eps * (4 * np.abs(self.known[:2, part]).max(axis=0) + slips) + self.tiny)
            self.P, reach = [*self.P, np.maximum(self.known[1, part], 0.0)], 0.0
        self.outputs = self.num((np.abs(W[-1]) @ self.P[-1] + np.abs(b[-1]) + reach) * (1 + 1e-9))

    def scale(self, A, s):
        """A s in the units of A, rounded down: for 0 <= s <= 1 between 0 and A."""
        return A * s if self.K is None else (A * s) >> self.K

    def floor(self, values, m):
        """Numbers in units m as floats that are no larger; less than 0 where they are 0, as with floats."""
        return values if self.K is None else np.nextafter([down(Fraction(v, self.unit**m)) for v in values], -np.inf)

    def sigma(self, T, m):
        """For each row t of T, in units m, the largest -t.w on the ball, rounded up, in units m + 1."""
        size = -self.scale(-np.abs(T), -self.num(-self.inverse))
        part, (fall, rise) = 0 * size if math.isinf(self.p) else size, -self.num(-self.rooms)
        if self.boxed and not math.isinf(self.p):
            keep = self.kept((size / self.unit**m).astype(np.float64), np.where(T > 0, *self.rooms))
            part = np.minimum(size, keep if self.K is None else units(keep, self.K * m))
        total = -self.num([-self.r]) * norm(part, self.q) + ((size - part) * np.where(T > 0, fall, rise)).sum(axis=1)
        return total if self.K else total * (1.0 + (4 * T.shape[1] + 256) * 2.3e-16) + TINY

    def kept(self, size, room):
        """The most that each coordinate keeps in t1: the best split, or nearly (any is sound)."""
        p, q, share = self.p, float(self.q), np.minimum(room / self.r, 1.0)
        fills = np.where(share > 0, size / share ** (p - 1), np.inf)  # m below which a coordinate is full
        order, ends = np.argsort(-fills, axis=1), np.array([[0.0]] * len(size))
        fills, logs, used = (np.take_along_axis(a, order, 1) for a in (fills, np.log(size), share**p))
        logs = logs[:, ::-1]  # the l_q norm of all but the first i, in logarithms, since powers vanish for p near 1
        norms = np.maximum.accumulate(logs, 1) if p == 1.0 else np.logaddexp.accumulate(q * logs, 1) / q
        left = np.hstack([ends + 1.0, 1.0 - np.cumsum(used, axis=1)])
        m = np.exp(np.hstack([norms[:, ::-1], ends - np.inf])) / np.maximum(left, 0.0) ** (1 / q)
        good = (left > 0) & (m <= np.hstack([ends + np.inf, fills]))  # the first i are full, given that m
        last = size.shape[1] - good[:, ::-1].argmax(axis=1)
        return np.clip(np.nan_to_num(np.take_along_axis(m, last[:, None], 1) * share ** (p - 1)), 0.0, 1e300)

    def sides(self):
        lo, hi, phase = self.known
        on = (phase > 0) | ((phase == 0) & (lo >= 0))
        return on.astype(int) - (~on & ((phase < 0) | (hi <= 0)))

    def bend(self, k, neg, facets):
        """What facets leave to chords of the coefficients neg (0 where not open), and what they add to A, c and err."""
        under, own, more = self.part[k - 1], 0 * neg, self.num(np.zeros((len(neg), self.widths[k - 1] + 2)))
        low, high = np.maximum(self.known[:2, under], 0) * (self.sides()[under] >= 0) if k > 1 else self.box
        box = np.array([self.num(low), -self.num(-high)])
        for r, at, share, parts in facets:
            if 0 <= (j := at - self.part[k].start) < neg.shape[1] and neg[r, j] < 0:
                i, b = np.flatnonzero(w := self.floats[k - 1][j]), self.b[k - 1][j]
                y, (a, w), s = box[:, i], self.num(np.array([parts * w[i], w[i]])), self.num([share])  # any a will do
                line = max(np.max(-a * y, axis=0).sum(), b * self.unit + np.max((w - a) * y, axis=0).sum())
                line, own[r, j] = -self.scale(-line, 1), self.scale(neg[r, j], s[0])  # line: rounded up
                slip = self.err[at] + 6 * self.eps * (np.abs(w) @ np.max(np.abs(y), axis=0) + abs(b))
                more[r, [*i, -2, -1]] += own[r, j] * np.array([*a, line, -slip], dtype=a.dtype)
        return neg - own, more[:, :-2], more[:, -2], more[:, -1]

    def descend(self, A, c, err, m, top, slopes, splits, facets=()):
        """From rows A.x^top + c in units m to h.w + c: h, c, m of h, and A, c, err, m over each x^k."""
        sides, kept = self.sides(), {}
        for k in range(top, 0, -1):
            part, side, free = self.part[k], sides[self.part[k]], sides[self.part[k]] == 0
            lo, hi = np.where(free, self.known[:2, part], [[-1.0], [1.0]])
            lo, hi, su = self.num(lo), -self.num(-hi), self.num(np.minimum(hi / (hi - lo), 1.0))
            beta = np.maximum(splits[:, part] * side, 0) * self.unit ** (m - 1)
            neg = np.where(free, np.minimum(A, 0), 0)
            up = np.where(free, self.scale(np.maximum(A, 0), slopes[:, part]), np.where(side > 0, A, 0))
            neg, line, constant, slip = self.bend(k, neg, facets) if facets else (neg, 0, 0, 0)
            err = err + slip + (np.abs(A) * (side >= 0) + beta) @ self.err[part]
            chord = self.scale(neg, su)  # neg relu(z) - chord z is concave: least at an end of [lo, hi]
            S = up + chord - beta * side
            c = c * self.unit + constant + np.minimum(-chord * lo, (neg - chord) * hi).sum(axis=1) + S @ self.b[k - 1]
            A, m = times(S, self.W[k - 1]) + line, m + 1
            kept[k - 1] = (A, c, err, m)
        return A, c * self.unit + A @ self.x - err - self.tiny, m, kept

    def halfspace(self, C, d, mu, alpha, beta, facets=()):
        """g, s with g.w + s <= F where unsafe, m of g, A_k, c_k by layer; is g.w + s > 0 on the ball?"""
        C, d, mu = self.num(C), self.num(d), self.num(mu)[None]
        A, c, total = times(mu @ C, self.W[-1]), mu @ (C @ self.b[-1] - d * self.unit), mu @ np.abs(C)
        err = 4 * self.eps * (total @ self.outputs + mu @ np.abs(d)) + self.tiny
        lines = (self.num(v)[None] for v in (alpha, beta * self.sides()))
        g, s, m, kept = self.descend(A, c, err, 3, self.L, *lines, facets)
        return g, s, m, kept, bool(s[0] < math.inf and s[0] * (1 - self.slip) > self.sigma(g, m)[0])  # Theorem 2

    def use(self, k, at, side, pull, lam, limit, slopes, splits, half, facets=()):
        """Bound neurons of layer k (Theorem 3); False when one has no value left."""
        t, lam, own = side[:, None], self.num(lam), at - self.starts[k - 1]
        A, c, err, m = t * self.num(self.floats[k - 1][own]), side * self.b[k - 1][own], self.err[at], 1
        if pull.any():
            (row, constant, slip, m), pull = half[3][k - 1], self.num(pull)
            terms = np.abs(row) @ self.num(self.P[k - 1]) + np.abs(constant)
            A, c = A * self.unit**m + pull[:, None] * row, c * self.unit**m + pull * constant
            err, m = err + pull * (4 * self.eps * terms + slip), m + 1
        slopes, splits = (self.num(table[:, : self.starts[k - 1]]) for table in (slopes, splits))
        h, c, m, _ = self.descend(A, c, err, m, k - 1, slopes, splits, facets)
        terms = np.abs(c) + np.abs(h) @ self.far
        if half is not None:
            (g, s, n, *_), most = half, max(m, half[2] + 1)
            own, lam = self.unit ** (most - m), lam * self.unit ** (most - n - 1)
            h, c, m = h * own + lam[:, None] * g, c * own + lam * s, most
            terms = terms + lam * (np.abs(s) + np.abs(g) @ self.far)  # what cancels in h + lam g was rounded before
        value = self.floor(c - (drop := self.sigma(h, m)) - self.slip * (terms + drop) - self.tiny, m + 1)
        value = np.where(np.isfinite(value), np.minimum(value, limit), -np.inf)
        np.maximum.at(self.known[0], at[side > 0], value[side > 0])
        np.minimum.at(self.known[1], at[side < 0], -value[side < 0])
        return not (self.known[0] > self.known[1]).any()


def walk(leaf, part, is_empty, halves):
    """Walk a tree in preorder; the number of its leaves. A part is None where nothing is left to be proved."""
    stack = [part]
    for node, last in enumerate(leaf.tolist()):
        need(stack, "the tree is complete before its last node")
        part = None if (part := stack.pop()) is None or is_empty(node, part) else part
        need(part is None or not last, f"leaf {node} is not proved: unsafe points are not excluded there")
        stack += [] if last else halves(node, part)
    need(not stack, "the tree ends with subtrees missing")
    return int(leaf.sum())


def halved(part, j, at, above):
    """Where number j is above (below) `at`, given lo, hi (and the phases of neurons) as rows; None if it is nowhere."""
    part = part.copy()
    part[0 if above else 1, j] = max(part[0, j], at) if above else min(part[1, j], at)
    part[2:, j] = 1 if above else -1
    return part if part[0, j] <= part[1, j] else None


def numbers(t, name, top=None, least=0.0, most=MOST):
    """An array of whole numbers below `top`, or of reals in a range; slopes may be parts of 255 or 65535."""
    a = t[name]
    if top is not None:
        need(a.ndim == 1 and a.dtype.kind in "iu" and ((a >= 0) & (a < top)).all(), f"{name}: no numbers below {top}")
        return a.astype(np.int64)
    a = a / float(np.iinfo(a.dtype).max) if a.dtype.kind == "u" and a.dtype.itemsize <= 2 and most == 1.0 else a
    need(a.dtype.kind == "f" and ((a >= least) & (a <= most)).all(), f"{name}: not from {least:g} to {most:g}")
    return a.astype(np.float64)


def table_of(t, name, values, below, N):
    """The slopes or splits of all rows as a dense matrix."""
    count, at = numbers(t, f"{name}_count", 1 << 60), numbers(t, f"{name}_at", N)
    need(len(count) == len(below) and len(at) == len(values) == count.sum(), f"{name}: the counts do not fit")
    owner, table = np.repeat(np.arange(len(count)), count), np.zeros((len(count), N))
    need((at < below[owner]).all(), f"a row has a {name} for a neuron that is not below its own")
    need(not ((np.diff(at) <= 0) & (np.diff(owner) == 0)).any(), f"the neurons of {name}s must increase")
    table[owner, at] = values
    return table


def facets_of(t, facet, proof, below):
    """The facets of each objective or row: neuron, share, and a part for each nonzero entry of the neuron's row."""
    if not any(name.startswith(facet) for name in t):
        return [()] * len(below)
    share, part = (numbers(t, f"{facet}_{name}", most=1.0) for name in ("share", "part"))
    at = np.nonzero(table_of(t, facet, 1 + 0 * share, below, int(proof.starts[-1])))[1]  # they increase in a row
    sizes = np.concatenate([[0], *(np.count_nonzero(w, axis=1) for w in proof.floats[:-1])])[1 + at]
    need(part.shape == (sizes.sum(),), f"{facet}_part: one number per nonzero entry of the rows of {facet}_at")
    facets = iter(zip(at.tolist(), share, np.split(part, np.cumsum(sizes)), strict=False))
    return [[next(facets) for _ in range(n)] for n in t[f"{facet}_count"].tolist()]


def prove_tree(proof, C, d, t):
    """Walk a tree of neurons; the number of its leaves."""
    N, layer, neuron = int(proof.starts[-1]), numbers(t, "layer", proof.L + 1), t["neuron"]  # not read at a leaf
    steps, uses = numbers(t, "steps", 1 << 60), numbers(t, "uses", 1 << 60)
    mu, beta, pull, lam = (numbers(t, name) for name in ("mu", "beta", "pull", "lam"))
    alpha, slope = (numbers(t, name, most=1.0) for name in ("alpha", "slope"))
    need(mu.ndim == 2 and mu.shape[1:] == (len(d),) and alpha.shape == beta.shape == (len(mu), N), "bad objectives")
    target, side = numbers(t, "target", N), t["side"].astype(np.int64)
    need(t["side"].dtype.kind == "i" and (np.abs(side) == 1).all(), "a row's side must be +1 or -1")
    use, objective = numbers(t, "row", len(target)), numbers(t, "objective", len(mu))
    ends = np.concatenate([[0], np.cumsum(steps)]), np.concatenate([[0], np.cumsum(uses)])
    limit = numbers(t, "limit", least=-np.inf, most=np.inf) if "limit" in t else np.full(len(lam), np.inf)
    need(layer.shape == steps.shape == neuron.shape and len(layer) and neuron.dtype.kind in "iu", "nodes do not fit")
    need(len(objective) == len(uses) == ends[0][-1] and limit.shape == use.shape == lam.shape, "steps do not fit")
    need(len(use) == ends[1][-1] and side.shape == pull.shape == target.shape, "uses or rows do not fit")
    below = proof.starts[(own := np.searchsorted(proof.starts, target, side="right")) - 1]  # own: layers from 1
    need(not pull[own == 1].any(), "a row of the first layer has a pull")
    slopes = table_of(t, "slope", slope, below, N)
    splits = table_of(t, "split", numbers(t, "split", least=-MOST), below, N)
    lines, more = facets_of(t, "facet", proof, np.full(len(mu), N)), facets_of(t, "row_facet", proof, below)

    def is_empty(node, known):
        proof.known = known
        for step in range(ends[0][node], ends[0][node + 1]):
            o, first = objective[step], ends[1][step]
            half = proof.halfspace(C, d, mu[o], alpha[o], beta[o], [(0, *f) for f in lines[o]])
            if half[4]:
                return True
            layers = own[use[first : ends[1][step + 1]]]
            need(not (np.diff(layers) < 0).any(), f"step {step} does not go up the layers")
            for k in np.unique(layers).tolist():
                r = use[at := first + np.flatnonzero(layers == k)]
                bent = [(n, *f) for n, row in enumerate(r) for f in more[row]]
                if not proof.use(k, target[r], side[r], pull[r], lam[at], limit[at], slopes[r], splits[r], half, bent):
                    return True
        return False

    def halves(node, known):
        k, j = int(layer[node]), int(neuron[node])
        need(0 <= j < proof.widths[k], f"node {node} splits a neuron that does not exist")
        j += int(proof.starts[k - 1])
        need(known is None or known[2, j] == 0, f"node {node} splits a neuron a second time")
        return [None if known is None else halved(known, j, 0.0, on) for on in (False, True)]  # on is taken first

    return walk(layer == 0, proof.start.copy(), is_empty, halves)


def prove_boxes(proof, C, d, t):
    """Walk a tree that cuts boxes of inputs; the number of its leaves, which are cut further: cuts need no trust."""
    axis, cut = t["axis"], t["cut"].astype(np.float64)
    good = axis.ndim == 1 and axis.shape == cut.shape and axis.dtype.kind == "i" and t["cut"].dtype.kind == "f"
    need(good and np.isfinite(cut[axis >= 0]).all() and (axis < len(proof.x)).all(), "a box tree's arrays do not fit")
    box = np.hstack([proof.box, [[-np.inf], [np.inf]] * np.ones(proof.starts[-1])])  # of neurons nothing is known yet

    def halves(node, box):
        return [None if box is None else halved(box, axis[node], cut[node], above) for above in (True, False)]

    return walk(axis < 0, box, lambda node, box: empty_box(proof, C, d, box, 10 if axis[node] < 0 else 0), halves)


def empty_box(root, C, d, box, cuts):
    """Is there no unsafe point in the box? Otherwise it is shaved in place, and cut in two up to `cuts` times."""
    lo, hi = box[:, : len(root.x)]
    mid = np.clip(0.5 * lo + 0.5 * hi, lo, hi)
    r = float(np.maximum(hi - mid, mid - lo).max() * (1 + 1e-15)) + 1e-300
    proof = Proof(*root.net, [(C, d)], mid, math.inf, r, lo, hi, 1.0 + 0 * mid, root.K, box[:, len(mid) :])
    alpha, mu, far = 1.0 * (proof.known[1] > -proof.known[0]), np.zeros(len(d)), 0 * lo
    halves = [proof.halfspace(C, d, row, alpha, 0 * alpha) for row in np.eye(len(d))]
    closed, m = any(half[4] for half in halves), halves[0][2]
    G, s = (np.array([h[i][0] / proof.unit ** (m + i) for h in halves]).astype(np.float64) for i in (0, 1))
    for t in range(0 if closed else 64):  # a game: rows that exclude most of the points where their mixture mu is least
        mu[(t * s + G @ far).argmax()] += 1
        far -= np.sign(mu @ G) * (0.5 * hi - 0.5 * lo)
    halves.append(proof.halfspace(C, d, mu, alpha, 0 * alpha))
    for g, s, *_ in halves:  # where g.w + s <= 0, coordinate j is within room of the end where g.w is least
        least = proof.floor(s - proof.sigma(g, m) - proof.slip * (np.abs(s) + np.abs(g) @ proof.far), m + 1)[0]
        slope = (g[0] / proof.unit**m).astype(np.float64)
        room = np.nextafter(np.abs(least / slope) * (1 + 1e-14) + 1e-14 * (np.abs(lo) + np.abs(hi)), np.inf)
        hi[:] = np.where((slope > TINY) & (least <= 0), np.minimum(hi, lo + room), hi)
        lo[:] = np.where((slope < -TINY) & (least <= 0), np.maximum(lo, hi - room), lo)
    j = int((hi - lo).argmax())
    parts = [halved(box, j, lo[j] + 0.5 * (hi[j] - lo[j]), above) for above in (False, True)]
    closed = closed or halves[-1][4] or (lo > hi).any()
    return closed or (cuts > 0 and all(p is None or empty_box(root, C, d, p, cuts - 1) for p in parts))


def check(proof_path, network_path, exact):
    """The sentence that was proved; NotProved says why not."""
    (W, b, threshold), arrays = read_network(network_path), read(proof_path)
    header, kinds = json.loads(arrays["header"].tobytes().decode()), {a.dtype.kind for a in arrays.values()}
    if header["format"] != "layercert certificate" or header["version"] not in (1, 2) or kinds - set("iuf"):
        raise ValueError("it is no certificate of format 2")
    label, asked, p, r = header["label"], header.get("asked"), float(header["p"]), float(header["radius"])
    if label is not None and len(b[-1]) == 1:  # one output f: two classes with the outputs (threshold, f)
        W[-1], b[-1] = np.vstack([np.zeros_like(W[-1]), W[-1]]), np.array([threshold, b[-1][0]])
    parts = (repr(tuple(map(int, a.shape))).encode() + np.ascontiguousarray(a, dtype="<f8").tobytes() for a in W + b)
    need(header["network"] == hashlib.sha256(b"".join(parts)).hexdigest(), "the certificate is about another network")
    n, wanted = W[0].shape[1], (("x", math.nan), ("low", -math.inf), ("high", math.inf), ("weights", 1.0))
    x, low, high, weights = (arrays.get(name, np.full(n, default)).astype(np.float64) for name, default in wanted)
    need(all(v.shape == (n,) for v in (x, low, high, weights)), "x, the domain or the weights do not fit the network")
    need(header["x_sha256"] == hashlib.sha256(x.astype("<f8").tobytes()).hexdigest(), "x does not match its hash")
    good = np.isfinite(x).all() and p >= 1 and 0 <= r < math.inf and ((weights >= 1e-100) & (weights <= 1e100)).all()
    need(good, "x, the norm, the radius or a weight is no number in range")
    need(((low <= x) & (x <= high)).all(), "x is outside of the domain")
    clauses = [tuple(arrays[f"{c}{i}"].astype(np.float64) for c in "Cd") for i in range(len(header["targets"]))]
    check_clauses(clauses, header["targets"], label, asked, len(b[-1]))
    sizes = [np.abs(a).max() for a in (x, r, *(C for C, _ in clauses), (weights + 1 / weights) * 1e25)]
    need(exact or max(sizes) < LARGE, "x, r or C exceed 1e75, or weights 1e50: try --exact")
    start = {False: None, True: [[-np.inf], [np.inf]] * np.ones(sum(map(len, b[:-1])))}[header.get("intervals", False)]
    leaves, proof = 0, Proof(W, b, clauses, x, p, r, low, high, weights, exact, start) if r > 0 else None
    for i in range(len(clauses)):
        tree = {name[: -len(str(i))]: a for name, a in arrays.items() if name.rstrip("0123456789") + str(i) == name}
        need("axis" in tree or "steps" in tree, "a tree is missing, or of format 1, which this checker does not read")
        if "axis" in tree and "weights" in arrays:  # cuts are of weights * (v - x); rounding is harmless
            tree["cut"] = x[(at := np.clip(tree["axis"], 0, n - 1))] + tree["cut"] / weights[at]
        leaves += (prove_boxes if "axis" in tree else prove_tree)(proof, *clauses[i], tree) if r > 0 else 0
    need("witness" in arrays or r > 0 or not is_unsafe(W, b, x, clauses), "x itself is unsafe")
    if not (witness := "" if "witness" in arrays else "there is no witness"):
        v = arrays["witness"].astype(np.float64)
        good = v.shape == x.shape and ((low <= v) & (v <= high) & np.isfinite(v)).all()
        need(good and is_unsafe(W, b, v, clauses), "the witness does not fit x or the domain, or is not unsafe")
        moved = np.abs(units(v, K := fineness(v, x, weights)) - units(x, K)) * units(weights, K)
        upper = 0 - down(-Fraction(norm(moved[None], p if p in (1.0, math.inf) else Fraction(p))[0], 1 << 2 * K))
        need(upper * (1 - 1e-9) <= header["upper"] <= upper * (1 + 1e-9) + 1e-12, f"the witness is at distance {upper}")
        witness = f"the witness, which is unsafe, lies at distance {upper:.17g}"
    span, *box = (f"{v.min():.17g} to {v.max():.17g}" for v in (weights, low, high, high - low))
    length = ("l_inf" if math.isinf(p) else f"l_{p:.17g}") + f" (weights {span})" * ("weights" in arrays)
    where = f"within {length} distance {r:.17g} of x"
    where += " inside the domain (low {}, high {}, width {})".format(*box) * bool(np.isfinite([low, high]).any())
    claim = f"every point {where} is given class {label}" if r > 0 else "nothing is claimed of points around x"
    if r > 0 and (label is None or asked is not None):
        claim = f"no point {where} " + ("has an unsafe output" if label is None else f"is given class {asked}")
    about = f"Proved for the network with SHA-256 {header['network']} and the input x with SHA-256 {header['x_sha256']}"
    return f"{about}: {claim}; {witness} ({leaves} leaves, {'rational' if exact else 'outward-rounded'} arithmetic)."


def check_clauses(clauses, targets, label, asked, classes):
    """Clauses must make sense; those of a claim about classes must cover them with nothing but f_k - f_j <= 0."""
    need(clauses and (label is not None or asked is None), "there is no clause, or no label")
    wanted = [] if label is None else [j for j in range(classes) if j != label] if asked is None else asked
    need(set(wanted) <= set(targets) and (label is None or (wanted and label in range(classes))), "a class is left out")
    for (C, d), j in zip(clauses, targets, strict=True):
        good = d.shape == (len(d) or 1,) and C.shape == (len(d), classes) and np.isfinite([*C.flat, *d]).all()
        need(good, "a clause's arrays do not fit, or have a number that is none")
        if label is not None:
            need(j in range(classes) and j in wanted, "a clause names no other class, or one that is not asked for")
            others = [label] if asked is None else [k for k in range(classes) if k != j]
            rows = np.eye(classes)[others] - np.eye(classes)[j]
            need(rows.shape == C.shape and (rows == C).all() and not d.any(), f"the clause of class {j} is another one")


def is_unsafe(W, b, v, clauses):
    h = units(v, K := fineness(*W, *b, v, *sum(clauses, ())))
    for k, (w, bias) in enumerate(zip(W, b, strict=True), 1):
        h = times((np.maximum(h, 0) if k > 1 else h)[None], sparse(w.T, K))[0] + (units(bias, K) << k * K)
    return any((units(C, K) @ h <= units(d, K) << (len(W) + 1) * K).all() for C, d in clauses)


def main(arguments):
    paths, exact = [a for a in arguments if not a.startswith("--")], "--exact" in arguments
    if len(paths) != 2 or len(arguments) > 2 + exact:
        return print(__doc__, file=sys.stderr) or 2
    try:
        with np.errstate(all="ignore"):
            return print(check(*paths, exact)) or 0
    except Exception as error:  # whatever a hostile file makes numpy, zipfile or json say
        kind, code = ("PROVED", 1) if isinstance(error, NotProved) else (f"READABLE: {type(error).__name__}", 2)
        return print(f"NOT {kind}: {error}" + " (try --exact)" * (code == 1 > exact), file=sys.stderr) or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
