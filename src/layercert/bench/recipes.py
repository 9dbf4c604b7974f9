"""Which networks RadiusBench has, and how each was trained. A recipe is a value; `train.py` follows it."""

from __future__ import annotations

from dataclasses import dataclass

from layercert.errors import unknown

#: How a network is trained.
PLAIN, L1, ADVERSARIAL, INTERVAL, SKLEARN = "plain", "l1", "adversarial", "interval", "sklearn"


@dataclass(frozen=True)
class Recipe:
    """One network.

    Attributes:
        name: Data set, training and size in one word.
        data: The data set it learns from.
        hidden: Neurons of the dense hidden layers.
        training: plain, l1 (a penalty on the weights), adversarial (PGD in l_inf), interval (bounds), or sklearn.
        conv: Convolutions in front, each (channels, kernel, stride); inputs are pictures then.
        pool: Whether a max pooling of 2 x 2 follows the first convolution.
        eps: The l_inf radius of adversarial and interval training.
        epochs: How often the data are seen.
        l1: The factor of the l1 norm of all weights in the loss.
    """

    name: str
    data: str
    hidden: tuple[int, ...]
    training: str = PLAIN
    conv: tuple[tuple[int, int, int], ...] = ()
    pool: bool = False
    eps: float = 0.0
    epochs: int = 40
    l1: float = 0.0

    @property
    def size(self) -> str:
        """The layers in words: conv 4x3/2, 16."""
        convs = [f"conv {channels}x{kernel}/{stride}" for channels, kernel, stride in self.conv]
        if self.pool:
            convs.insert(1, "max pool 2")
        return ", ".join([*convs, *(str(n) for n in self.hidden)])


_SMALL_CNN = ((4, 3, 2), (8, 3, 2))
RECIPES = (
    Recipe("digits_plain_2x20", "digits", (20, 20)),
    Recipe("digits_plain_2x50", "digits", (50, 50)),
    Recipe("digits_plain_5x20", "digits", (20,) * 5),
    Recipe("digits_l1_3x20", "digits", (20,) * 3, L1, l1=1e-3, epochs=60),
    Recipe("digits_adv_2x50", "digits", (50, 50), ADVERSARIAL, eps=0.1, epochs=60),
    Recipe("digits_adv_4x30", "digits", (30,) * 4, ADVERSARIAL, eps=0.1, epochs=60),
    Recipe("digits_ibp_2x50", "digits", (50, 50), INTERVAL, eps=0.1, epochs=100),
    Recipe("digits_cnn_plain", "digits", (16,), conv=_SMALL_CNN),
    Recipe("digits_cnn_adv", "digits", (16,), ADVERSARIAL, conv=_SMALL_CNN, eps=0.1, epochs=60),
    Recipe("digits_cnn_ibp", "digits", (16,), INTERVAL, conv=_SMALL_CNN, eps=0.1, epochs=100),
    Recipe("digits_cnn_pool", "digits", (16,), conv=((3, 3, 1),), pool=True),
    Recipe("wine_plain_2x20", "wine", (20, 20), epochs=150),
    Recipe("wine_adv_2x20", "wine", (20, 20), ADVERSARIAL, eps=0.1, epochs=150),
    Recipe("wine_sklearn_2x10", "wine", (10, 10), SKLEARN, epochs=2000),
    Recipe("cancer_plain_2x20", "cancer", (20, 20), epochs=80),
    Recipe("cancer_adv_3x20", "cancer", (20,) * 3, ADVERSARIAL, eps=0.05, epochs=80),
    Recipe("iris_sklearn_2x10", "iris", (10, 10), SKLEARN, epochs=2000),
    Recipe("moons_plain_3x20", "moons", (20,) * 3),
    Recipe("spirals_plain_4x20", "spirals", (20,) * 4, epochs=80),
    Recipe("encounters_plain_4x25", "encounters", (25,) * 4, epochs=20),
    Recipe("encounters_plain_6x50", "encounters", (50,) * 6, epochs=20),
    Recipe("encounters_adv_4x25", "encounters", (25,) * 4, ADVERSARIAL, eps=0.01, epochs=20),
    Recipe("mnist10_adv_2x50", "mnist10", (50, 50), ADVERSARIAL, eps=0.1, epochs=10),
    Recipe("mnist10_ibp_2x50", "mnist10", (50, 50), INTERVAL, eps=0.1, epochs=20),
    Recipe("mnist10_cnn_ibp", "mnist10", (16,), INTERVAL, conv=((4, 4, 3), (6, 3, 2)), eps=0.1, epochs=10),
)


def recipe(name: str) -> Recipe:
    """The recipe of a network.

    Args:
        name: Its name.

    Returns:
        The recipe.

    Raises:
        OptionError: There is none of that name.
    """
    for each in RECIPES:
        if each.name == name:
            return each
    raise unknown("network of RadiusBench", name, [each.name for each in RECIPES])
