"""Matrix products without BLAS: for matrices this small its threads cost more than they bring; zeros are skipped."""

from __future__ import annotations

import numpy as np

from layercert.compiled.jit import njit_sums


@njit_sums
def times(A, W):  # type: ignore[no-untyped-def]
    """A W; two rows of A meet four rows of W at a time; rows of W that neither needs are skipped."""
    m, n = A.shape
    width = W.shape[1]
    out = np.zeros((m, width))
    at = np.empty(n, np.intp)
    for r in range(0, m, 2):
        last = min(r + 1, m - 1)
        count = 0
        for i in range(n):
            if A[r, i] != 0.0 or A[last, i] != 0.0:
                at[count] = i
                count += 1
        one, two = out[r], out[last]
        if last == r:
            two = np.empty(width)
        i = 0
        while i + 4 <= count:
            p, q, s, t = at[i], at[i + 1], at[i + 2], at[i + 3]
            a, b, c, d = A[r, p], A[r, q], A[r, s], A[r, t]
            e, f, g, h = A[last, p], A[last, q], A[last, s], A[last, t]
            for j in range(width):
                one[j] += a * W[p, j] + b * W[q, j] + c * W[s, j] + d * W[t, j]
                two[j] += e * W[p, j] + f * W[q, j] + g * W[s, j] + h * W[t, j]
            i += 4
        while i < count:
            p = at[i]
            a, e = A[r, p], A[last, p]
            for j in range(width):
                one[j] += a * W[p, j]
                two[j] += e * W[p, j]
            i += 1
    return out


@njit_sums
def times_transposed(A, W):  # type: ignore[no-untyped-def]
    """A W^T; two rows of A meet two rows of W at a time."""
    m, n = A.shape
    width = W.shape[0]
    out = np.empty((m, width))
    for r in range(0, m, 2):
        last = min(r + 1, m - 1)
        for i in range(0, width, 2):
            other = min(i + 1, width - 1)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for j in range(n):
                a += A[r, j] * W[i, j]
                b += A[r, j] * W[other, j]
                c += A[last, j] * W[i, j]
                d += A[last, j] * W[other, j]
            out[r, i], out[r, other] = a, b
            out[last, i], out[last, other] = c, d
    return out
