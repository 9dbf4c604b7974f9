"""A model of Keras, as TensorFlow's exporter writes it: images have their channels last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert.arrays import Matrix
from layercert.cli import main
from layercert.errors import InputError

HERE = Path(__file__).parent / "keras"
MODEL = HERE / "channels_last.onnx"
SHAPE = (6, 5, 2)


@pytest.fixture(scope="module")
def answers() -> tuple[Matrix, Matrix]:
    with np.load(HERE / "answers.npz") as file:
        return file["X"].astype(float), file["probabilities"].astype(float)


def test_the_network_is_the_model(answers: tuple[Matrix, Matrix]) -> None:
    X, probabilities = answers
    net = lc.load(MODEL)
    assert net.image_shape == SHAPE and net.dropped.startswith("Softmax")
    f = net(X.reshape(len(X), -1))
    exp = np.exp(f - f.max(axis=1, keepdims=True))
    assert exp / exp.sum(axis=1, keepdims=True) == pytest.approx(probabilities, abs=1e-6)


@pytest.mark.parametrize("batch", [(), (1,)])
def test_a_witness_has_the_shape_of_the_image(answers: tuple[Matrix, Matrix], batch: tuple[int, ...]) -> None:
    pytest.importorskip("onnxruntime")
    net, x = lc.load(MODEL), answers[0][0].reshape(*batch, *SHAPE)
    r = lc.measure(net, x, domain=(0, 1), gap=1e-3)
    assert r.status == "exact" and str(r.holds) == "misclassified in exact arithmetic, also under onnxruntime"
    assert r.witness_as_input is not None and r.witness_as_input.shape == x.shape
    assert np.abs(r.witness_as_input - x).max() == pytest.approx(r.upper, rel=1e-12)


def test_channels_first_are_refused(answers: tuple[Matrix, Matrix]) -> None:
    with pytest.raises(InputError, match=r"has shape \(2, 6, 5\), the network expects \(6, 5, 2\); transpose it"):
        lc.measure(lc.load(MODEL), answers[0][0].transpose(2, 0, 1))


def test_on_the_command_line(
    answers: tuple[Matrix, Matrix], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", answers[0])
    assert (
        main(["verify", str(MODEL), "--input", str(tmp_path / "images.npy"), "--radius", "0.01", "--domain", "0", "1"])
        == 0
    )
    assert capsys.readouterr().out.count(" robust") == 4
