"""Small dense linear algebra for the kernels: vectors, triangles of the active set, inverses under pivots."""

from __future__ import annotations

from layercert.arrays import Matrix, Vector
from layercert.compiled.jit import inner, inner_sums


@inner
def copy(source: Vector, target: Vector) -> None:
    """target = source. A slice assignment does the same but takes numba two seconds more to compile."""
    for c in range(len(target)):
        target[c] = source[c]


@inner
def copy_rows(source: Matrix, target: Matrix) -> None:
    """The same for matrices."""
    for i in range(len(target)):
        for c in range(target.shape[1]):
            target[i, c] = source[i, c]


@inner
def clear(target: Vector) -> None:
    """target = 0."""
    for c in range(len(target)):
        target[c] = 0.0


@inner
def axpy(t: float, a: Vector, b: Vector) -> None:
    """b += t a."""
    for c in range(len(b)):
        b[c] += t * a[c]


@inner_sums
def dot(a: Vector, b: Vector, k: int) -> float:
    """The inner product of the first k entries."""
    total = 0.0
    for c in range(k):
        total += a[c] * b[c]
    return total


@inner_sums
def two_dots(a: Vector, b: Vector, c: Vector, k: int) -> tuple[float, float]:
    """a.b and a.c in one pass over a."""
    first = second = 0.0
    for j in range(k):
        first += a[j] * b[j]
        second += a[j] * c[j]
    return first, second


@inner_sums
def total(a: Vector) -> float:
    """The sum of all entries."""
    s = 0.0
    for c in range(len(a)):
        s += a[c]
    return s


@inner_sums
def largest(a: Vector, k: int) -> float:
    """The largest absolute value of the first k entries."""
    top = 0.0
    for c in range(k):
        top = max(top, abs(a[c]))
    return top


@inner
def cholesky(H: Matrix, L: Matrix, k: int, extra: float) -> bool:
    """L L^T = H + extra*I for the first k rows; False where a pivot is lost."""
    for i in range(k):
        for j in range(i):
            L[i, j] = (H[i, j] - dot(L[i], L[j], j)) / L[j, j]
        square = H[i, i] + extra - dot(L[i], L[i], i)
        if not square > 0.0:
            return False
        L[i, i] = square**0.5
    return True


@inner
def forward(L: Matrix, k: int, v: Vector) -> None:
    """Solve L v = v in place, L lower triangular."""
    for i in range(k):
        v[i] = (v[i] - dot(L[i], v, i)) / L[i, i]


@inner
def backward(L: Matrix, k: int, v: Vector) -> None:
    """Solve L^T v = v in place, L lower triangular."""
    for i in range(k - 1, -1, -1):
        v[i] /= L[i, i]
        for j in range(i):
            v[j] -= L[i, j] * v[i]


@inner
def invert(both: Matrix, k: int) -> bool:
    """Gauss-Jordan elimination: (M | I) becomes (I | M^-1); False when M is singular."""
    for b in range(k):
        pivot = b
        for a in range(b + 1, k):
            if abs(both[a, b]) > abs(both[pivot, b]):
                pivot = a
        if not abs(both[pivot, b]) > 1e-14:
            return False
        if pivot != b:
            for c in range(2 * k):
                both[b, c], both[pivot, c] = both[pivot, c], both[b, c]
        scale = 1.0 / both[b, b]
        for c in range(b, 2 * k):
            both[b, c] *= scale
        for a in range(k):
            t = both[a, b]
            if a != b and t != 0.0:
                for c in range(b, 2 * k):
                    both[a, c] -= t * both[b, c]
    return True


# Below, X is the inverse of M (row b of X belongs to column b of M), p = X u for a new column u of M, and q = v X for a
# new row v of M.


@inner
def border(X: Matrix, k: int, p: Vector, q: Vector, pivot: float) -> None:
    """M gets a row and a column; pivot = corner - v X u."""
    for b in range(k):
        t = p[b] / pivot
        for a in range(k):
            X[b, a] += t * q[a]
        X[b, k] = -t
    for a in range(k):
        X[k, a] = -q[a] / pivot
    X[k, k] = 1.0 / pivot


@inner
def replace_row(X: Matrix, k: int, q: Vector, out: int) -> None:
    """Row `out` of M becomes v; q[out] is the pivot."""
    pivot = q[out]
    for b in range(k):
        t = X[b, out] / pivot
        for a in range(k):
            if a != out:
                X[b, a] -= t * q[a]
        X[b, out] = t


@inner
def replace_column(X: Matrix, k: int, p: Vector, out: int) -> None:
    """Column `out` of M becomes u; p[out] is the pivot."""
    pivot = p[out]
    for a in range(k):
        X[out, a] /= pivot
    for b in range(k):
        if b != out and p[b] != 0.0:
            for a in range(k):
                X[b, a] -= p[b] * X[out, a]


@inner
def remove(X: Matrix, k: int, row: int, column: int) -> None:
    """M loses a row and a column; its last row and column take their places."""
    last = k - 1
    pivot = X[column, row]
    for b in range(k):
        if b != column:
            t = X[b, row] / pivot
            for a in range(k):
                X[b, a] -= t * X[column, a]
    for a in range(k):
        X[column, a] = X[last, a]
    for b in range(last):
        X[b, row] = X[b, last]
