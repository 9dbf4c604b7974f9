"""Input splitting: boxes of inputs, each closed by one linear bound, for networks with few inputs."""

from layercert.search.inputs.search import FEW_INPUTS, Effort, input_split, open_neurons

__all__ = ["FEW_INPUTS", "Effort", "input_split", "open_neurons"]
