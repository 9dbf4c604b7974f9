"""What a result shows: the witness in the input's own shape, and itself in a notebook; networks that are none."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import layercert as lc
from layercert.errors import ModelError
from layercert.network import Network


def square(side: int) -> Network:
    rng = np.random.default_rng(2)
    return Network.from_arrays([rng.normal(size=(2, side * side))], [np.zeros(2)])


@pytest.mark.parametrize("shape", [(16,), (4, 4), (1, 1, 4, 4)])
def test_the_witness_in_the_shape_of_the_input(shape: tuple[int, ...]) -> None:
    x = np.linspace(0, 1, 16).reshape(shape)
    r = lc.measure(square(4), x)
    assert r.witness is not None and r.witness.shape == (16,)
    assert r.witness_as_input is not None and r.witness_as_input.shape == shape
    (many,) = lc.measure_all(square(4), x[None])
    assert many.witness_as_input.shape == shape and (many.witness_as_input == r.witness_as_input).all()


def test_a_notebook_shows_pictures() -> None:
    shown = lc.measure(square(4), np.linspace(0, 1, 16).reshape(4, 4))._repr_html_()
    assert shown.count("data:image/png;base64,") == 3 and "exact: " in shown


def test_a_notebook_shows_what_changes() -> None:
    network = Network.from_arrays([[[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0]])
    r = lc.measure(Network(network.maps, network.biases, input_names=("a<b", "c")), [1.0, 0.5], "l1")
    shown = r._repr_html_()
    assert "<table>" in shown and "data:image" not in shown
    assert ("a&lt;b" in shown) == any(change.name == "a<b" for change in r.changes)
    assert "a<b" not in shown


def test_a_notebook_shows_an_answer_without_a_witness() -> None:
    shown = lc.measure(square(4), np.linspace(0, 1, 16), radius=1e-9)._repr_html_()
    assert shown.startswith("<p>robust: nothing within") and "<img" not in shown


def test_a_model_that_was_not_read(tmp_path: Path, torch: ModuleType) -> None:
    module = torch.nn.Linear(2, 2)
    fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    for given, remedy in ((module, r"lc.from_torch\(module\)"), (fitted, r"lc.from_sklearn\(model\)"),
                          (tmp_path / "a.onnx", r"lc.load\(path\)"), ([1.0], "lc.Network.from_arrays")):  # fmt: skip
        for ask in (lc.measure, lc.measure_all):
            with pytest.raises(ModelError, match=f"must be a layercert Network, got .*{remedy}"):
                ask(given, [[0.0, 0.0]])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
def test_wrapped_modules(torch: ModuleType) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    assert lc.from_torch(torch.compile(module)).sha256 == lc.from_torch(module).sha256
    with pytest.raises(ModelError, match="scripted or traced module, whose Python code is gone; pass the"):
        lc.from_torch(torch.jit.trace(module, torch.zeros(1, 2)))


def test_tensors_with_gradients(torch: ModuleType) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    x = torch.tensor([[0.3, 0.4]], requires_grad=True)
    r = lc.measure(lc.from_torch(module), x, radius=10.0)
    assert r.x is not None and r.x.tolist() == x.detach().double().numpy().ravel().tolist()


def test_the_target_is_that_of_the_witness_wherever_it_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes are equally near, and the model's runtime may agree to one of them only."""
    net = Network.from_arrays([np.eye(2), [[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]], [[0.0, 0.0], [1.0, 0.0, 0.0]])
    for moved, target in (([0.51, 0.2], 1), ([0.2, 0.51], 2)):
        monkeypatch.setattr("layercert.run.harden", lambda problem, v, most, to=moved: (np.array(to), None))
        result = lc.measure(net, [0.2, 0.2])
        assert result.witness is not None and result.witness.tolist() == moved
        assert result.target == target and result.upper == pytest.approx(0.31)
