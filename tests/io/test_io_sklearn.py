"""scikit-learn's models: the same classes as their own `predict`, and what cannot be read is refused by name."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from layercert.errors import ModelError, OptionError

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed; run: pip install 'layercert[sklearn]'")

from sklearn.decomposition import PCA  # noqa: E402
from sklearn.feature_selection import SelectKBest, VarianceThreshold  # noqa: E402
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier  # noqa: E402
from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

RNG = np.random.default_rng(0)
#: Sixty points of four numbers on different scales; two classes, and three.
X = RNG.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, 5.0, 1.0, -2.0]
TWO = np.where(X[:, 0] + X[:, 1] / 10 > 0.5, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5]) + 5


def mlp(**options: Any) -> Any:
    return MLPClassifier((6, 5), max_iter=60, random_state=0, **options)


def fitted(model: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody wants these models to converge
        return model.fit(X, y)


FRONTS = [
    [],
    [StandardScaler()],
    [StandardScaler(with_mean=False)],
    [StandardScaler(with_std=False)],
    [MinMaxScaler()],
    [MinMaxScaler((-1, 2), clip=True)],
    [MaxAbsScaler()],
    [RobustScaler()],
    [RobustScaler(with_centering=False)],
    [StandardScaler(), PCA(3)],
    [PCA(2, whiten=True)],
    [VarianceThreshold(0.5), SelectKBest(k=2), StandardScaler()],
    [make_pipeline(StandardScaler(), "passthrough"), MinMaxScaler()],
]
CLASSIFIERS = [
    mlp(),
    mlp(activation="identity"),
    LogisticRegression(),
    LinearSVC(),
    Perceptron(),
    RidgeClassifier(fit_intercept=False),
    SGDClassifier(random_state=0),
]


def agrees(model: Any) -> None:
    """The network's class is the model's at points inside and far outside of the data."""
    net = lc.from_sklearn(model)
    points = np.vstack([X, RNG.normal(size=(40, 4)) * [3.0, 30.0, 1.0, 9.0]])
    classes = [net.classifier.classify(net.point(v)) for v in points]
    assert (model.classes_[classes] == model.predict(points)).all()
    assert net.input_shape == (1, 4) and net.source.startswith("scikit-learn ")


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("front", range(len(FRONTS)))
def test_steps_in_front(front: int, y: Any) -> None:
    agrees(fitted(make_pipeline(*FRONTS[front], mlp()), y))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_classifiers(model: Any, y: Any) -> None:
    agrees(fitted(make_pipeline(StandardScaler(), sklearn.base.clone(model)), y))
    agrees(fitted(sklearn.base.clone(model), y))


def test_a_distance_and_its_witness_under_scikit_learn() -> None:
    model = fitted(make_pipeline(StandardScaler(), mlp()), TWO)
    net = lc.from_sklearn(model)
    r = lc.measure(net, X[0], "l2")
    assert r.status == "exact" and r.witness is not None
    assert r.holds is not None and r.holds.runtime == "scikit-learn" and r.holds.runtime_agrees
    assert model.predict([r.witness])[0] != model.predict([X[0]])[0]
    assert model.predict_proba([r.witness])[0, 1] == pytest.approx(0.5, abs=1e-5)


def test_a_threshold_is_a_probability() -> None:
    model = fitted(make_pipeline(StandardScaler(), mlp()), TWO)
    net = lc.from_sklearn(model, threshold=0.8)
    sure = model.predict_proba(X)[:, 1] > 0.8
    assert [net.classifier.classify(net.point(v)) for v in X] == sure.astype(int).tolist()
    with pytest.raises(OptionError, match="a threshold belongs to a network with one output, this one has 3"):
        lc.from_sklearn(fitted(mlp(), THREE), threshold=0.5)


def test_a_network_without_hidden_layers_keeps_its_weights() -> None:
    model = fitted(LogisticRegression(), THREE)
    net = lc.from_sklearn(model)
    assert (net.weights[0] == model.coef_).all() and (net.biases[0] == model.intercept_).all()


class Own(StandardScaler):  # type: ignore[misc]
    def transform(self, X: Any, copy: Any = None) -> Any:
        return X * X


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (mlp(), "MLPClassifier is not fitted yet; call fit"),
        (make_pipeline(StandardScaler(), mlp()), "StandardScaler is not fitted yet; call fit"),
        (
            fitted(mlp(activation="tanh"), TWO),
            "has activation 'tanh', which is not piecewise linear; supported: ",
        ),
        (fitted(make_pipeline(PolynomialFeatures(), mlp()), TWO), "the step PolynomialFeatures is not supported; supp"),
        (fitted(DecisionTreeClassifier(), TWO), "the classifier DecisionTreeClassifier is not supported; supported: L"),
        (fitted(make_pipeline(Own(), mlp()), TWO), "the step Own is not supported"),
        (fitted(MLPRegressor(max_iter=20), X[:, 0]), "the classifier MLPRegressor is not supported"),
        (fitted(mlp(), RNG.integers(0, 2, (60, 3))), "MLPClassifier gives several labels at once"),
        ("model", "from_sklearn takes a fitted classifier or pipeline, got str"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_by_name(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lc.from_sklearn(model)


# Exported by skl2onnx.


def exported(model: Any, path: Path, zipmap: bool) -> Path:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed; run: pip install skl2onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = skl2onnx.to_onnx(model, X[:1].astype(np.float32), options={id(model): {"zipmap": zipmap}})
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("front", [StandardScaler(), MinMaxScaler()], ids=["Scaler", "Mul and Add"])
def test_exports_with_labels_and_probabilities(tmp_path: Path, front: Any, y: Any, zipmap: bool) -> None:
    model = fitted(make_pipeline(front, mlp()), y)
    net = lc.load(exported(model, tmp_path / "m.onnx", zipmap))
    assert (model.classes_[[net.classifier.classify(net.point(v)) for v in X]] == model.predict(X)).all()
    r = lc.measure(net, X[1].astype(np.float32))
    assert r.status == "exact" and r.holds is not None
    assert r.holds.runtime == "onnxruntime" and r.holds.runtime_agrees


def test_an_export_can_be_compressed(tmp_path: Path) -> None:
    model = fitted(mlp(), TWO)
    plain = exported(model, tmp_path / "m.onnx", zipmap=False)
    (tmp_path / "m.onnx.gz").write_bytes(gzip.compress(plain.read_bytes()))
    net = lc.load(tmp_path / "m.onnx.gz")
    assert net.sha256 == lc.load(plain).sha256
    assert net.runtime is not None
    answer = net.runtime(X[0])
    assert answer is not None and answer[0] == pytest.approx(model.predict_proba(X[:1])[0, 1], rel=1e-4)


def test_an_output_by_name(tmp_path: Path) -> None:
    path = exported(fitted(mlp(), THREE), tmp_path / "m.onnx", zipmap=False)
    assert lc.load(path, output="probabilities").sha256 == lc.load(path).sha256
    with pytest.raises(ModelError, match="there is no output 'scores'; the model has 'label', 'probabilities'"):
        lc.load(path, output="scores")
    lc.load(path).save(tmp_path / "m.npz")
    with pytest.raises(OptionError, match="output='label' names an output of an ONNX model"):
        lc.load(tmp_path / "m.npz", output="label")


def test_whitening_that_was_fitted_in_float32() -> None:
    """A direction without variance is divided by the eps of float32 then, half a billion times that of float64."""
    X = np.random.default_rng(0).normal(size=(80, 3))
    X[:, 2] = X[:, 0]
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = make_pipeline(PCA(whiten=True), Perceptron()).fit(X.astype(np.float32), y)
    assert model[0].explained_variance_.dtype == np.float32 and model[0].explained_variance_[2] < 1e-14
    points = np.random.default_rng(1).normal(size=(40, 3))
    assert lc.from_sklearn(model)(points)[:, 0] == pytest.approx(model.decision_function(points), rel=1e-5)
