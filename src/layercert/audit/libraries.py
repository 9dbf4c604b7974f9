"""Attacks and verifiers of other packages, as they come: foolbox, torchattacks, auto_LiRPA.

Each is called with the settings its documentation starts with, but for the number of steps where that is noted. All of
them take inputs inside a box, so they are asked in the setting "box" only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.audit.case import Case, Tool
from layercert.audit.verifiers import largest
from layercert.norms import Norm

BOX = ("box",)
#: Carlini and Wagner's attack and EAD with 1,000 steps instead of 10,000, which take minutes per network; the latter
#: have names of their own.
CW_STEPS, CW_SEARCHES = 1000, 9
SLOW = "-full"
#: FAB: steps as in AutoAttack.
FAB_STEPS = 100


def installed() -> list[Tool]:
    """The tools of those packages that are there."""
    tools: list[Tool] = []
    if find_spec("foolbox") is not None:
        tools += [
            Tool(name, "attack", _foolbox(*how), (norm,), BOX, name.endswith(SLOW)) for name, norm, *how in FOOLBOX
        ]
    if find_spec("torchattacks") is not None:
        tools += [
            Tool("torchattacks-deepfool", "attack", _torchattacks_deepfool, ("l2",), BOX),
            # its l_1 version ends in an UnboundLocalError (3.5.1)
            Tool("torchattacks-fab", "attack", _torchattacks_fab, ("linf", "l2"), BOX),
        ]
    if find_spec("auto_LiRPA") is not None:
        tools += [
            Tool("auto_LiRPA-crown", "verifier", _lirpa("CROWN"), ("linf", "l2"), BOX),
            Tool("auto_LiRPA-alpha-crown", "verifier", _lirpa("CROWN-Optimized"), ("linf", "l2"), BOX),
        ]
    return [replace(tool, loads=True) for tool in tools]


#: Name, norm, class in foolbox.attacks, arguments.
FOOLBOX: tuple[tuple[Any, ...], ...] = (
    ("foolbox-deepfool-linf", "linf", "LinfDeepFoolAttack", {}),
    ("foolbox-deepfool-l2", "l2", "L2DeepFoolAttack", {}),
    ("foolbox-fmn-linf", "linf", "LInfFMNAttack", {}),
    ("foolbox-fmn-l2", "l2", "L2FMNAttack", {}),
    ("foolbox-fmn-l1", "l1", "L1FMNAttack", {}),
    ("foolbox-cw-l2", "l2", "L2CarliniWagnerAttack", {"steps": CW_STEPS, "binary_search_steps": CW_SEARCHES}),
    ("foolbox-ead-l1", "l1", "EADAttack", {"steps": CW_STEPS, "binary_search_steps": CW_SEARCHES}),
    (f"foolbox-cw-l2{SLOW}", "l2", "L2CarliniWagnerAttack", {}),
    (f"foolbox-ead-l1{SLOW}", "l1", "EADAttack", {}),
)


def _foolbox(attack: str, settings: dict[str, Any]) -> Callable[[Case], Matrix]:
    def run(case: Case) -> Matrix:
        import foolbox
        import torch

        torch.manual_seed(0)
        model = foolbox.PyTorchModel(case.module, bounds=case.domain)
        X, y = _tensors(case)
        raw, _, _ = getattr(foolbox.attacks, attack)(**settings)(model, X, y, epsilons=None)
        return np.asarray(raw.detach().double().numpy())

    return run


def _torchattacks_deepfool(case: Case) -> Matrix:
    import torch
    import torchattacks

    torch.manual_seed(0)
    return np.asarray(torchattacks.DeepFool(case.module)(*_tensors(case)).detach().double().numpy())


def _torchattacks_fab(case: Case) -> Matrix:
    import torch
    import torchattacks

    torch.manual_seed(0)
    norm = {"linf": "Linf", "l2": "L2"}[case.norm]
    attack = torchattacks.FAB(
        case.module, norm=norm, eps=4.0 * case.unit, steps=FAB_STEPS, n_restarts=1, n_classes=case.network.classes
    )
    return np.asarray(attack(*_tensors(case)).detach().double().numpy())


def _tensors(case: Case) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(case.X.astype(np.float32)), torch.from_numpy(case.y.astype(np.int64))


def _lirpa(method: str) -> Callable[[Case], Vector]:
    def run(case: Case) -> Vector:
        import torch
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

        X, _ = _tensors(case)
        model = BoundedModule(case.module, X[:1])
        low, high = (float(end) for end in case.domain or (-np.inf, np.inf))

        def certified(i: int) -> float:
            C = torch.stack([row for clause in case.problem(i).clauses for row in torch.from_numpy(clause.C).float()])

            def proves(radius: float) -> bool:
                p = Norm.of(case.norm).p
                box = {"x_L": (X[i : i + 1] - radius).clamp(min=low), "x_U": (X[i : i + 1] + radius).clamp(max=high)}
                ball = PerturbationLpNorm(norm=p, eps=radius, **(box if np.isinf(p) else {}))
                lower, _ = model.compute_bounds(
                    x=(BoundedTensor(X[i : i + 1], ball),), C=C[None], method=method, bound_upper=False
                )
                return bool((lower > 0).all())

            return largest(proves, case.unit)

        return np.array([certified(i) for i in range(len(X))])

    return run
