"""Which neurons' outputs above relu keep a program's value below the network's own value at the same point.

A program's point w has outputs h of its own, which may be above relu of their pre-activations z; the network has
others, from w on. Let e = h' - h be the difference, primes for the network. With D the slope of relu between z and z',

    e_k = relu(z'_k) - relu(z_k) - (h_k - relu(z_k)) = D_k W_k e_(k-1) - (h_k - relu(z_k)),

so F' - F is a sum over neurons: each output above relu, times what a backward pass through the slopes D says that it
weighs. The multipliers of the program do not tell that. They say what is lost when one output falls a little; where
many together hold the value down, each of them can be taken back for nothing, and their multipliers are close to zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layercert.arrays import LinearMap, Vector
from layercert.network import Network

#: Pre-activations closer than this have no slope between them.
CLOSE = 1e-12


def blame(network: Network, maps: Sequence[LinearMap], v: Vector, outputs: Vector, form: Vector) -> Vector:
    """What each neuron accounts for in form . (f(v) - the program's outputs); `outputs` of hidden neurons in a row are
    the program's, NaN for those that it has no output for (they are relu of what comes in)."""
    noff = network.packed.noff
    above, slopes, h = [], [], v
    for k, real in enumerate(network.preactivations(v)):
        z = np.asarray(maps[k] @ h + network.biases[k])
        relu, own = np.maximum(z, 0.0), outputs[int(noff[k]) : int(noff[k + 1])]
        h = np.where(np.isnan(own), relu, own)
        above.append(h - relu)
        apart = np.abs(real - z) > CLOSE
        rise = (np.maximum(real, 0.0) - relu) / np.where(apart, real - z, 1.0)
        slopes.append(np.where(apart, rise, real > 0.0))
    c, parts = np.asarray(maps[-1].T @ form), list[Vector]()
    for k in reversed(range(network.L)):
        parts.append(-above[k] * c)
        c = np.asarray(maps[k].T @ (slopes[k] * c))
    return np.concatenate(parts[::-1])
