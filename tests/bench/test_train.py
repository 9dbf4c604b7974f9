"""The recipes can be followed: data sets of known form, and every kind of training gives a network that has learnt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from layercert.bench.recipes import RECIPES, recipe
from layercert.bench.samples import NAMES, samples
from layercert.bench.ship import save_small
from layercert.bench.train import train, trainable
from layercert.errors import InputError, OptionError
from layercert.io import load


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mnist10"])
def test_samples_lie_in_the_unit_box_and_are_the_same_every_time(name: str) -> None:
    data, again = samples(name), samples(name)
    for part, other in ((data.train, again.train), (data.test, again.test)):
        assert part.X.dtype == np.float32 and part.X.min() >= 0 and part.X.max() <= 1
        assert np.array_equal(part.X, other.X) and np.array_equal(part.y, other.y)
    assert set(data.test.y) == set(range(data.classes))
    assert len(data.train.X) == pytest.approx(3 * len(data.test.X), rel=0.05)


def test_the_advice_is_to_turn_away_from_the_side_on_which_the_other_one_passes() -> None:
    data = samples("encounters")
    distance = data.train.X[:, 0]
    assert (data.train.y[distance > 0.95] == 0).mean() > 0.8, "far away is clear of conflict"
    assert (data.train.y[distance < 0.1] >= 3).mean() > 0.9, "very near asks for a strong turn"


@pytest.mark.parametrize(
    ("name", "epochs"), [("wine_plain_2x20", 60), ("wine_adv_2x20", 60), ("digits_cnn_ibp", 15), ("digits_cnn_pool", 3)]
)
def test_a_recipe_gives_a_network_that_has_learnt(name: str, epochs: int, torch: ModuleType, tmp_path: Path) -> None:
    network, accuracy = train(replace(recipe(name), epochs=epochs))
    assert accuracy > (0.9 if name.startswith("wine") else 0.3), "ten classes by chance: 0.1"
    save_small(network, tmp_path / "small.npz")
    assert load(tmp_path / "small.npz").sha256 == network.sha256


def test_scikit_learn_trains_too() -> None:
    network, accuracy = train(recipe("iris_sklearn_2x10"))
    assert network.widths == (10, 10) and accuracy > 0.9


def test_what_needs_mnist_says_so() -> None:
    assert {r.name for r in RECIPES} - {r.name for r in trainable(None)} == {
        "mnist10_adv_2x50", "mnist10_ibp_2x50", "mnist10_cnn_ibp",
    }  # fmt: skip
    with pytest.raises(InputError, match="mnist10 needs the MNIST files; name their folder with --mnist DIR"):
        samples("mnist10")
    with pytest.raises(OptionError, match="unknown network of RadiusBench 'wine'"):
        recipe("wine")
