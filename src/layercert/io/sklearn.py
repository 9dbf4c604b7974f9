"""scikit-learn's classifiers: MLPClassifier and linear ones, alone or at the end of a pipeline of affine steps.

Each step is written as its own `transform` computes it; affine steps are fused as `layercert.io.affine` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.errors import MissingPackageError, ModelError
from layercert.io.affine import Affine
from layercert.network import Network


def read_sklearn(model: Any) -> Network:
    """The network of a fitted classifier or pipeline; class k is model.classes_[k]."""
    try:
        import sklearn.base
        import sklearn.pipeline
    except ImportError:
        raise MissingPackageError("scikit-learn", "reading a scikit-learn model", "sklearn") from None
    if not isinstance(model, sklearn.base.BaseEstimator):
        raise ModelError(f"from_sklearn takes a fitted classifier or pipeline, got {type(model).__name__}")
    steps = list(_steps(model, sklearn.pipeline.Pipeline))
    if not steps:
        raise ModelError("the pipeline is empty; its last step must be a classifier")
    inputs = getattr(steps[0], "n_features_in_", None)
    if inputs is None:
        raise ModelError(f"{type(steps[0]).__name__} is not fitted yet; call fit(X, y) first")
    x = Affine.input((1, int(inputs)))
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found, and named, by Network
        for step in steps[:-1]:
            x = _row(step, _TRANSFORMERS, "step")(step, x)
        y = _row(steps[-1], _CLASSIFIERS, "classifier")(steps[-1], x)
        network = y.network(f"scikit-learn {type(steps[-1]).__name__}")
    runtime = SklearnRuntime(model, network.classes)
    names = tuple(str(name) for name in getattr(steps[0], "feature_names_in_", ()))
    return replace(network, input_shape=(1, int(inputs)), runtime=runtime, input_names=names)


def _steps(model: Any, pipeline: type) -> Iterator[Any]:
    """The steps of a pipeline, of pipelines inside it too."""
    if not isinstance(model, pipeline):
        yield model
        return
    for _, step in model.steps:  # type: ignore[attr-defined]
        if step is not None and step != "passthrough":
            yield from _steps(step, pipeline)


def _row(step: Any, table: dict[str, Callable[[Any, Affine], Affine]], kind: str) -> Callable[[Any, Affine], Affine]:
    name = type(step).__name__
    if name not in table or not type(step).__module__.startswith("sklearn."):
        raise ModelError(
            f"the {kind} {name} is not supported; supported: {', '.join(sorted(table))}; an exact distance needs a "
            "model that is continuous and piecewise linear"
        )
    return table[name]


def _fitted(step: Any, name: str) -> Any:
    if not hasattr(step, name):
        raise ModelError(f"{type(step).__name__} is not fitted yet; call fit(X, y) first")
    return getattr(step, name)


def _numbers(step: Any, name: str) -> Vector:
    return np.asarray(_fitted(step, name), dtype=np.float64)


# Steps in front.


def _standard(step: Any, x: Affine) -> Affine:
    _fitted(step, "n_features_in_")
    x = x.plus(-_numbers(step, "mean_")) if step.with_mean else x
    return x.over(_numbers(step, "scale_")) if step.with_std else x


def _min_max(step: Any, x: Affine) -> Affine:
    y = x.times(_numbers(step, "scale_")).plus(_numbers(step, "min_"))
    if not step.clip:
        return y
    low, high = (float(end) for end in step.feature_range)
    above = y.plus(np.array(-low)).relu()  # low + relu(y - low) - relu(y - high)
    return above.add(y.plus(np.array(-high)).relu().negated()).plus(np.array(low))


def _max_abs(step: Any, x: Affine) -> Affine:
    if getattr(step, "clip", False):
        raise ModelError("MaxAbsScaler with clip=True is not supported; use MinMaxScaler(clip=True)")
    return x.over(_numbers(step, "scale_"))


def _robust(step: Any, x: Affine) -> Affine:
    _fitted(step, "n_features_in_")
    x = x.plus(-_numbers(step, "center_")) if step.with_centering else x
    return x.over(_numbers(step, "scale_")) if step.with_scaling else x


def _pca(step: Any, x: Affine) -> Affine:
    y = x.plus(-_numbers(step, "mean_")).matmul(_numbers(step, "components_").T)
    if not step.whiten:
        return y
    # as its transform does, in the type that it was fitted in: a variance of zero is not divided by
    spread = np.sqrt(np.asarray(_fitted(step, "explained_variance_")))
    return y.over(np.maximum(spread, np.finfo(spread.dtype).eps).astype(np.float64))


def _selected(step: Any, x: Affine) -> Affine:
    _fitted(step, "n_features_in_")
    return x.gather(x.ids[:, np.flatnonzero(step.get_support())])


_TRANSFORMERS: dict[str, Callable[[Any, Affine], Affine]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "PCA": _pca,
    "SelectKBest": _selected,
    "SelectPercentile": _selected,
    "VarianceThreshold": _selected,
}


# Classifiers.


def _mlp(model: Any, x: Affine) -> Affine:
    if model.activation not in ("relu", "identity"):
        raise ModelError(
            f"MLPClassifier has activation {model.activation!r}, which is not piecewise linear; "
            "supported: 'relu', 'identity'; train it with activation='relu'"
        )
    weights, biases = _fitted(model, "coefs_"), _fitted(model, "intercepts_")
    _refuse_several_labels(model)
    for i, (W, b) in enumerate(zip(weights, biases, strict=True)):
        x = x.matmul(np.asarray(W, dtype=np.float64)).plus(np.asarray(b, dtype=np.float64))
        if i < len(weights) - 1 and model.activation == "relu":
            x = x.relu()
    return replace(x, dropped=f"{'Sigmoid' if x.size == 1 else 'Softmax'} of MLPClassifier")


def _linear(model: Any, x: Affine) -> Affine:
    W = _numbers(model, "coef_")
    _refuse_several_labels(model)
    # the intercept is the number 0.0 where none is fitted
    return x.matmul(np.atleast_2d(W).T).plus(np.atleast_1d(_numbers(model, "intercept_")))


def _logistic(model: Any, x: Affine) -> Affine:
    """Probabilities of two classes are a Sigmoid; those of several keep the order of the scores."""
    y = _linear(model, x)
    return replace(y, dropped="Sigmoid of LogisticRegression") if y.size == 1 else y


def _refuse_several_labels(model: Any) -> None:
    binarizer = getattr(model, "_label_binarizer", None)
    if str(getattr(binarizer, "y_type_", "")).startswith("multilabel"):
        raise ModelError(f"{type(model).__name__} gives several labels at once; a classifier gives one of its classes")


_CLASSIFIERS: dict[str, Callable[[Any, Affine], Affine]] = {
    "MLPClassifier": _mlp,
    "LogisticRegression": _logistic,
    "LinearSVC": _linear,
    "Perceptron": _linear,
    "RidgeClassifier": _linear,
    "SGDClassifier": _linear,
}


@dataclass(eq=False)
class SklearnRuntime:
    """The model's own scores: probabilities where it has them (and the network left them out), else its decisions."""

    model: Any
    outputs: int
    name: str = "scikit-learn"

    def __call__(self, v: Vector) -> Vector | None:
        last = self.model.steps[-1][1] if hasattr(self.model, "steps") else self.model
        probable = type(last).__name__ in ("MLPClassifier", *(["LogisticRegression"] if self.outputs == 1 else []))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about feature names, which a point does not have
            scores = (self.model.predict_proba if probable else self.model.decision_function)(v.reshape(1, -1))
        flat = np.asarray(scores, dtype=np.float64).reshape(-1)
        return flat[-1:] if self.outputs == 1 else flat
