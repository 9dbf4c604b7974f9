"""Binary heads: one output and a threshold, from every source, through every question."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from scipy.sparse import csr_array

import layercert as lc
from helpers.onnx_models import build
from layercert.batch import Model
from layercert.cli import main
from layercert.errors import InputError, ModelError, OptionError
from layercert.network import Network
from layercert.problem import robustness

#: f(v) = relu(v0 + v1) - relu(v0 - v1): at (1, 0.5) it is 1, and it is 2 v1 around there.
NET = Network.from_arrays([[[1.0, 1.0], [1.0, -1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])


@pytest.mark.parametrize(
    ("threshold", "label", "distance"),
    [
        (0.0, 1, 0.5),  # v1 = 0
        (0.5, 1, 0.25),  # 2 v1 = 0.5
        (1.5, 0, 0.25),  # 2 v1 = 1.5
    ],
)
@pytest.mark.parametrize("method", ["adaptive", "geocert", "layercert-both", "input-split", "mip"])
def test_the_distance_is_that_to_the_threshold(method: str, threshold: float, label: int, distance: float) -> None:
    net = NET.with_threshold(threshold)
    r = lc.measure(net, [1.0, 0.5], "linf", method=method, domain=(0, 2))
    assert (r.status, r.label, r.target) == ("exact", label, 1 - label)
    assert r.upper == pytest.approx(distance, rel=1e-6) and r.lower == pytest.approx(distance, rel=1e-6)
    assert r.witness is not None and NET(r.witness)[0] == pytest.approx(threshold, abs=1e-6)


def test_random_networks_agree_with_two_logits() -> None:
    """(0, f) has the same classes as f with the threshold 0: both are asked."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        W, V = rng.normal(size=(6, 3)), rng.normal(size=(1, 6))
        b, c = rng.normal(size=6), rng.normal(size=1)
        x = rng.normal(size=3)
        one = Network.from_arrays([W, V], [b, c])
        two = Network.from_arrays([W, np.vstack([np.zeros_like(V), V])], [b, [0.0, c[0]]])
        assert lc.measure(one, x).as_dict()["upper"] == lc.measure(two, x).as_dict()["upper"]
        assert one.classifier.sha256 == two.sha256


def test_a_label_that_is_not_the_networks_own() -> None:
    r = lc.measure(NET, [1.0, 0.5], label=0)
    assert (r.status, r.upper, r.target) == ("exact", 0.0, 1)
    with pytest.raises(InputError, match=r"label 2 is out of range: the network has 2 outputs, so labels are 0\.\.1"):
        lc.measure(NET, [1.0, 0.5], label=2)


def test_a_tie_is_class_0_and_not_robust() -> None:
    net = NET.with_threshold(1.0)
    assert robustness(net, [1.0, 0.5]).label == 0
    assert lc.measure(net, [1.0, 0.5]).upper == 0.0


def test_verify_and_certificates(tmp_path: Path) -> None:
    net = NET.with_threshold(0.5)
    r = lc.verify(net, [1.0, 0.5], 0.2, certificate=True)
    assert r.status == "robust" and r.certificate is not None
    r.certificate.save(tmp_path / "c.npz")
    proof = lc.load_certificate(tmp_path / "c.npz")
    assert lc.check(net, proof).ok
    other = lc.check(net.with_threshold(0.9), proof)  # where the distance is 0.05
    assert not other.ok and "another network" in str(other)


def test_the_threshold_is_saved(tmp_path: Path) -> None:
    NET.with_threshold(0.75).save(tmp_path / "n.npz")
    assert lc.load(tmp_path / "n.npz").threshold == 0.75
    assert lc.load(tmp_path / "n.npz", threshold=0.25).threshold == 0.25
    NET.save(tmp_path / "n.npz")
    assert lc.load(tmp_path / "n.npz").threshold == 0.0
    with (tmp_path / "n.npz").open("wb") as file:
        np.savez(file, **NET.arrays(), threshold=math.nan)
    with pytest.raises(ModelError, match="threshold must be a finite number, got nan"):
        lc.load(tmp_path / "n.npz")


def test_a_large_last_layer_stays_sparse() -> None:
    n = 1 << 23
    W = csr_array(([1.0, -2.0], ([0, 0], [3, n - 1])), shape=(1, n))
    net = Network.from_arrays([W], [[0.5]]).with_threshold(0.25).classifier
    assert net.is_sparse and net.classes == 2
    v = np.zeros(n)
    v[3] = 4.0
    assert net(v).tolist() == [0.25, 4.5]


def test_pickling_leaves_out_what_can_be_made_again() -> None:
    net = NET.with_threshold(0.5)
    before = net.classifier
    again = pickle.loads(pickle.dumps(net))
    assert "classifier" not in vars(again) and again.classifier.sha256 == before.sha256


def test_thresholds_that_make_no_sense() -> None:
    two = Network.from_arrays([np.eye(2)], [np.zeros(2)])
    with pytest.raises(OptionError, match="a threshold belongs to a network with one output, this one has 2"):
        two.with_threshold(0.5)
    with pytest.raises(OptionError, match="the threshold must be a finite number, got inf"):
        NET.with_threshold(math.inf)


# Sources.


def sigmoid_model(path: Path, tail: str = "y = Sigmoid(z)") -> Path:
    weights = {"W": NET.weights[0].T.astype(np.float32), "V": NET.weights[1].T.astype(np.float32)}
    onnx.save(build(f"h = MatMul(x, W); r = Relu(h); z = MatMul(r, V); {tail}", ("N", 2), **weights), path)
    return path


def test_a_sigmoid_at_the_end_of_onnx_is_left_out(tmp_path: Path) -> None:
    net = lc.load(sigmoid_model(tmp_path / "m.onnx"))
    assert net.dropped == "Sigmoid (node 'y')" and net.threshold == 0.0
    r = lc.measure(net, [1.0, 0.5])
    assert r.upper == pytest.approx(0.5, rel=1e-6)
    assert r.holds is not None and r.holds.runtime == "onnxruntime" and r.holds.runtime_agrees
    likely = lc.load(tmp_path / "m.onnx", threshold=0.6)
    assert likely.threshold == pytest.approx(math.log(1.5), rel=1e-15)
    r = lc.measure(likely, [1.0, 0.5])
    assert r.upper == pytest.approx(0.5 - math.log(1.5) / 2, rel=1e-6)
    assert r.holds is not None and r.holds.runtime_agrees
    for bad in (0.0, 1.0, 7.0):
        with pytest.raises(OptionError, match="ends in a Sigmoid, so its threshold is a probability between 0 and 1"):
            lc.load(tmp_path / "m.onnx", threshold=bad)


def test_the_sigmoid_goes_with_the_saved_network(tmp_path: Path) -> None:
    lc.load(sigmoid_model(tmp_path / "m.onnx"), threshold=0.6).save(tmp_path / "m.npz")
    again = lc.load(tmp_path / "m.npz")
    assert again.threshold == pytest.approx(math.log(1.5)) and again.with_threshold(0.5).threshold == 0.0


@pytest.mark.parametrize("tail", ["s = Sigmoid(z); y = Squeeze(s)", "s = Sigmoid(z); y = Flatten(s)"])
def test_only_moves_may_follow_a_sigmoid(tmp_path: Path, tail: str) -> None:
    assert lc.load(sigmoid_model(tmp_path / "m.onnx", tail)).classes == 1


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("s = Sigmoid(z); y = Relu(s)", r"Relu \(node 'y'\) follows Sigmoid \(node 's'\), which is taken only at"),
        ("s = Sigmoid(z); y = Sigmoid(s)", r"Sigmoid \(node 'y'\) follows Sigmoid"),
        ("y = Softmax(z)", r"one number out of Softmax \(node 'y'\), which depends on the other classes"),
        ("s = Softmax(r); k = Constant<value_ints=[1]>(); y = Gather<axis=1>(s, k)",
         r"one number out of Softmax \(node 's'\), which depends on the other classes; let the model give the scores"),
    ],
)  # fmt: skip
def test_what_would_change_the_class_is_refused(tmp_path: Path, tail: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lc.load(sigmoid_model(tmp_path / "m.onnx", tail))


def test_torch_modules(torch: ModuleType) -> None:
    nn = torch.nn
    body = [nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)]
    with torch.no_grad():
        for layer, W in zip(body[::2], NET.weights, strict=True):
            layer.weight.copy_(torch.tensor(W))

    class Functional(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(*body)

        def forward(self, x: object) -> object:
            return torch.sigmoid(self.body(x))

    for module in (nn.Sequential(*body, nn.Sigmoid()), Functional()):
        r = lc.measure(lc.from_torch(module, threshold=0.6), [1.0, 0.5])
        assert r.upper == pytest.approx(0.5 - math.log(1.5) / 2, rel=1e-6)
        assert r.holds is not None and r.holds.runtime == "PyTorch" and r.holds.runtime_agrees
    assert lc.measure(lc.from_torch(nn.Sequential(*body)), [1.0, 0.5]).upper == pytest.approx(0.5, rel=1e-6)
    with pytest.raises(ModelError, match="Linear '1' follows Sigmoid '0', which is taken only at the end"):
        lc.from_torch(nn.Sequential(nn.Sigmoid(), nn.Linear(2, 1)), input_shape=(2,))


# Batches and the command line.


def test_a_batch_knows_thresholds_apart() -> None:
    hashes = {Model("m", NET.with_threshold(t)).network.sha256 for t in (0.0, 0.5)}
    assert len(hashes) == 2


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = str(sigmoid_model(tmp_path / "m.onnx")), str(tmp_path / "x.npz")
    np.savez(data, X=[[1.0, 0.5]], y=[1])
    ask = ["--input", data, "--quiet", "--threshold", "0.6"]
    assert main(["measure", model, *ask, "--certificate", str(tmp_path / "c.npz")]) == 0
    assert f"{0.5 - math.log(1.5) / 2:.6f}" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "c.npz"), model, "--threshold", "0.6"]) == 0
    assert main(["check", str(tmp_path / "c.npz"), model]) != 0
    assert main(["verify", model, *ask, "--radius", "0.2"]) == 0
    assert main(["batch", model, "--data", data, "--out", str(tmp_path / "run"), "--threshold", "0.6", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["batch", model, "--data", data, "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert "models" in capsys.readouterr().err  # a run is about one threshold
