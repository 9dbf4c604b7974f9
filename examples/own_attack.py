"""An attack of your own beside the others: layercert audit --plugin examples/own_attack.py --tool walk --tool pgd.

It walks from the input towards inputs of other classes and stops at the first point that has another class.
"""

import numpy as np

from layercert.audit import Case, Tool


def walk(case: Case) -> np.ndarray:
    found = np.full_like(case.X, np.nan)  # NaN: nothing found
    for i, x in enumerate(case.X):
        others = case.X[case.y != case.y[i]]
        steps = [x + t * (v - x) for t in np.linspace(0, 1, 200) for v in others]
        hits = [v for v in steps if case.network(v).argmax() != case.y[i]]
        if hits:
            found[i] = min(hits, key=lambda v, x=x: np.abs(v - x).max())
    return found


TOOLS = [Tool("walk", "attack", walk)]
