"""Searches to look at, in two dimensions: regions, the growing ball, restrictions, the decision boundary, the witness.

network, x = appendix_a()
traces = [trace(robustness(network, x, "l2"), method) for method in ("geocert", "layercert-basic")]
save(traces, Scene.of(traces), Path("search.gif"))
"""

from layercert.explore.animate import save
from layercert.explore.draw import Scene
from layercert.explore.plane import Plane, appendix_a
from layercert.explore.trace import Trace, trace

__all__ = ["Plane", "Scene", "Trace", "appendix_a", "save", "trace"]
