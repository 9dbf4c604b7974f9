"""Input splitting: boxes of inputs, each closed by one linear bound, for networks with few inputs."""

from layercert.search.input_split.search import Effort, input_split, open_neurons, suits

__all__ = ["Effort", "input_split", "open_neurons", "suits"]
