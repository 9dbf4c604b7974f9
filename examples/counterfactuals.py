"""The smallest change that flips a decision: what would make a wine pass for one of another grower?

A scikit-learn pipeline on a table with names, each column counted in its own spread. Needs `layercert[sklearn,pandas]`.
"""

from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import layercert as lc

X, y = load_wine(return_X_y=True, as_frame=True)
model = make_pipeline(StandardScaler(), MLPClassifier((20, 20), max_iter=500, random_state=0)).fit(X, y)
network = lc.from_sklearn(model)
wine, spread = X.iloc[0], X.std().to_numpy()
asked = {"norm": "l1", "domain": (X.min(), X.max()), "weights": 1 / spread}

r = lc.measure(network, wine, **asked)
print(f"Any other grower: {r}\n{r.changes}\n")

r = lc.measure(network, wine, **asked, target=2)
print(f"Grower 2: {r}\n{r.changes}\n")

r = lc.measure(network, wine, **asked, target=2, fixed=["alcalinity_of_ash"], integer=["magnesium", "proline"])
print(f"Grower 2, the same ash, whole numbers: {r}\n{r.changes}\n")

r = lc.measure(network, wine, **asked, target=2, certificate=True)
print(lc.check(network, r.certificate))
