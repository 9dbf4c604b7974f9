"""Counterfactuals of scikit-learn's wine data: LayerCert's distances beside those of DiCE, where dice-ml is installed.

Usage: python benchmarks/counterfactuals.py    (dice-ml has old requirements: give it an environment of its own)

For ten wines and the next class: the weighted l1 distance (each column in its own spread) of the nearest change.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

WINES = range(0, 178, 18)


def exact(model: Pipeline, X: pd.DataFrame, weights: np.ndarray, targets: list[int]) -> list[float]:
    import layercert as lc

    network = lc.from_sklearn(model)
    ends = (X.min(), X.max())
    asked = [lc.measure(network, X.iloc[i], "l1", domain=ends, weights=weights, target=t)
             for i, t in zip(WINES, targets, strict=True)]  # fmt: skip
    assert all(r.status == "exact" for r in asked)
    return [r.upper for r in asked]


def dice(method: str, model: Pipeline, X: pd.DataFrame, y: pd.Series, targets: list[int]) -> list[float]:
    import dice_ml

    data = dice_ml.Data(dataframe=X.assign(label=y), continuous_features=list(X.columns), outcome_name="label")
    search = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method=method)
    found = []
    for i, target in zip(WINES, targets, strict=True):
        seed = {"random_seed": 0} if method == "random" else {}
        made = search.generate_counterfactuals(X.iloc[[i]], total_CFs=4, desired_class=target, **seed)
        V = made.cf_examples_list[0].final_cfs_df[X.columns].astype(float)
        V = V[model.predict(V) == target]
        found.append(min(np.abs((V - X.iloc[i]) / X.std()).sum(axis=1), default=np.inf))
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    X, y = load_wine(return_X_y=True, as_frame=True)
    model = make_pipeline(StandardScaler(), MLPClassifier((20, 20), max_iter=500, random_state=0)).fit(X, y)
    targets = [(int(k) + 1) % 3 for k in model.predict(X.iloc[list(WINES)])]
    weights = 1 / X.std().to_numpy()
    searches = {"layercert": lambda: exact(model, X, weights, targets)}
    for method in ("random", "genetic", "kdtree"):
        searches[f"dice {method}"] = lambda method=method: dice(method, model, X, y, targets)
    for name, search in searches.items():
        start = time.perf_counter()
        try:
            found = search()
        except ImportError as error:
            print(f"{name}: {error}")
            continue
        print(f"{name}: {' '.join(f'{d:.3f}' for d in found)} ({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    main()
