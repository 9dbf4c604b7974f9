"""Attacks as people write them, in PyTorch: one gradient step, and projected gradient steps at the smallest radius."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from layercert.arrays import Matrix
from layercert.audit.case import Case

if TYPE_CHECKING:
    import torch

#: FGSM looks along its ray at so many points, from this part of the unit up to so many units.
RAY_POINTS, RAY_FROM, RAY_TO = 200, 1e-4, 4.0
#: PGD: steps, restarts, the length of a step in parts of eps / steps, and halvings of the radius at the end.
STEPS, RESTARTS, PACE, HALVINGS = 40, 2, 2.5, 8
#: Of all inputs, how many one l_1 step moves (Tramer and Boneh 2019).
L1_SHARE = 0.05


def fgsm(case: Case) -> Matrix:
    """The first point of another class along the fast gradient direction (Goodfellow et al. 2015), for every norm."""
    import torch

    X, y = _tensors(case)
    slope = _gradient(case, X, y)
    best = torch.full_like(X, math.nan)
    open_ = torch.ones(len(X), dtype=torch.bool)
    for t in np.geomspace(RAY_FROM * case.unit, RAY_TO * case.unit, RAY_POINTS):
        V = _along(case, X, slope, float(t))
        hit = open_ & (case.module(V).argmax(dim=1) != y)
        best[hit] = V[hit]
        open_ &= ~hit
        if not open_.any():
            break
    return np.asarray(best.double().numpy())


def _along(case: Case, X: torch.Tensor, slope: torch.Tensor, t: float) -> torch.Tensor:
    """The step of length t that a linear function of this slope asks for; in l_1 inputs fill up one after the other."""
    if case.norm != "l1" or case.domain is None:
        return _clipped(case, X + t * _steepest(case, slope, share=0.0))
    room = (case.domain[1] - X).where(slope > 0, X - case.domain[0])
    order = slope.abs().argsort(dim=1, descending=True)
    sorted_room = room.gather(1, order)
    moved = (t - (sorted_room.cumsum(dim=1) - sorted_room)).clamp_min(0.0).minimum(sorted_room)
    return X + slope.sign() * moved.new_zeros(X.shape).scatter(1, order, moved)


def pgd(case: Case) -> Matrix:
    """Projected gradient descent (Madry et al. 2018) at radii that double until it succeeds and are then halved."""
    import torch

    torch.manual_seed(0)
    X, y = _tensors(case)
    known = _Known(torch.zeros(len(X)), torch.full((len(X),), math.inf), torch.full_like(X, math.nan))
    eps, nothing = 1e-3 * case.unit, torch.zeros(len(X))
    while eps <= RAY_TO * case.unit and bool(torch.isinf(known.high).any()):
        _try(case, X, y, torch.where(torch.isinf(known.high), nothing + eps, nothing), known)
        eps *= 2
    for _ in range(HALVINGS):
        middle = (known.low + known.high) / 2
        _try(case, X, y, torch.where(torch.isinf(known.high), nothing, middle), known)
    return np.asarray(known.best.double().numpy())


class _Known(NamedTuple):
    """For each input: a radius at which the attack failed, one at which it succeeded, and the point found there."""

    low: torch.Tensor
    high: torch.Tensor
    best: torch.Tensor


def _try(case: Case, X: torch.Tensor, y: torch.Tensor, eps: torch.Tensor, known: _Known) -> None:
    """One attack at a radius for each input, none where it is 0; `known` is brought up to date."""
    asked = eps > 0
    for _ in range(RESTARTS):
        left = asked.nonzero().flatten()
        if len(left) == 0:
            return
        V = _at_radius(case, X[left], y[left], eps[left])
        hit = case.module(V).argmax(dim=1) != y[left]
        won = left[hit]
        known.best[won] = V[hit]
        known.high[won] = eps[won].minimum(_norms(case, V[hit] - X[won]))
        asked[won] = False
    known.low[asked] = eps[asked]


def _at_radius(case: Case, X: torch.Tensor, y: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """PGD within a radius of its own for each input; it stays at the first point of another class."""
    import torch

    size = eps[:, None]
    V = _clipped(case, _projected(case, X, X + size * (2 * torch.rand_like(X) - 1), eps))
    done = torch.zeros(len(X), dtype=torch.bool)
    for _ in range(STEPS):
        step = _steepest(case, _gradient(case, V, y), L1_SHARE)
        moved = _clipped(case, _projected(case, X, V + PACE * size / STEPS * step, eps))
        V = torch.where(done[:, None], V, moved)
        done |= case.module(V).argmax(dim=1) != y
        if done.all():
            break
    return V


def _tensors(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return torch.from_numpy(case.X.astype(np.float32)), torch.from_numpy(case.y.astype(np.int64))


def _gradient(case: Case, V: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of the lead of the best other class: unlike the cross-entropy it does not vanish where the network is sure."""
    import torch

    V = V.detach().clone().requires_grad_()
    scores = case.module(V)
    own = scores.gather(1, y[:, None])[:, 0]
    others = scores.masked_fill(torch.nn.functional.one_hot(y, scores.shape[1]).bool(), -math.inf).amax(dim=1)
    (slope,) = torch.autograd.grad((others - own).sum(), V)
    if case.domain is not None:  # no way through the wall of the box
        blocked = ((case.domain[0] >= V) & (slope < 0)) | ((case.domain[1] <= V) & (slope > 0))
        slope = slope.masked_fill(blocked, 0.0)
    return slope


def _steepest(case: Case, slope: torch.Tensor, share: float) -> torch.Tensor:
    """The step of length 1 in the norm that the gradient asks for; in l_1 a share of the inputs moves, at least one."""
    if case.norm == "linf":
        return slope.sign()
    if case.norm == "l2":
        return slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-30)
    count = max(1, round(share * slope.shape[1]))
    least = slope.abs().topk(count, dim=1).values[:, -1:]
    step = slope.sign() * (slope.abs() >= least.clamp_min(1e-30))
    return step / step.abs().sum(dim=1, keepdim=True).clamp_min(1.0)


def _norms(case: Case, W: torch.Tensor) -> torch.Tensor:
    if case.norm == "linf":
        return W.abs().amax(dim=1)
    return W.norm(dim=1) if case.norm == "l2" else W.abs().sum(dim=1)


def _clipped(case: Case, V: torch.Tensor) -> torch.Tensor:
    return V if case.domain is None else V.clamp(*case.domain)


def _projected(case: Case, X: torch.Tensor, V: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """The nearest points within the radius of each input."""
    W, size = V - X, eps[:, None]
    if case.norm == "linf":
        return X + W.clamp(-size, size)
    if case.norm == "l2":
        return X + W * (size / W.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)
    # l_1: all sizes lowered by the same amount, so that they add up to eps (Duchi et al. 2008)
    sizes = W.abs().sort(dim=1, descending=True).values
    counts = sizes.cumsum(dim=1) - size
    ranks = sizes.new_ones(sizes.shape).cumsum(dim=1)
    last = (sizes * ranks > counts).sum(dim=1, keepdim=True).clamp_min(1)
    cut = (counts.gather(1, last - 1) / last).clamp_min(0.0)
    return X + W.sign() * (W.abs() - cut).clamp_min(0.0)
