"""LayerCert: the exact distance from an input to the nearest point of another class, for ReLU networks in any l_p norm.

import layercert as lc

net = lc.load("model.onnx")
result = lc.measure(net, x, norm="linf", domain=(0, 1))
print(result)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layercert.batch.many import Measurements, measure_all
    from layercert.bench.table import Radius, RadiusBench, radiusbench
    from layercert.certificate.checker import check
    from layercert.certificate.claim import Certificate, load_certificate
    from layercert.errors import LayerCertError
    from layercert.io import from_sklearn, from_torch, load
    from layercert.network import Network
    from layercert.problem import Clause, Problem, robustness
    from layercert.result import Result, Status, Verdict
    from layercert.run import measure, verify
    from layercert.spec.growth import Growth, measure_spec
    from layercert.spec.proofs import check_spec
    from layercert.spec.read import load_spec
    from layercert.spec.verify import Answer, SpecResult, verify_spec

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Certificate",
    "Clause",
    "Growth",
    "LayerCertError",
    "Measurements",
    "Network",
    "Problem",
    "Radius",
    "RadiusBench",
    "Result",
    "SpecResult",
    "Status",
    "Verdict",
    "check",
    "check_spec",
    "from_sklearn",
    "from_torch",
    "load",
    "load_certificate",
    "load_spec",
    "measure",
    "measure_all",
    "measure_spec",
    "radiusbench",
    "robustness",
    "verify",
    "verify_spec",
]

# Names are imported when first used, so that `import layercert` and the command line's --help stay fast.
_HOME = {
    "Certificate": "layercert.certificate.claim",
    "check": "layercert.certificate.checker",
    "load_certificate": "layercert.certificate.claim",
    "LayerCertError": "layercert.errors",
    "Network": "layercert.network",
    "Clause": "layercert.problem",
    "Problem": "layercert.problem",
    "robustness": "layercert.problem",
    "Result": "layercert.result",
    "Status": "layercert.result",
    "Verdict": "layercert.result",
    "from_sklearn": "layercert.io",
    "from_torch": "layercert.io",
    "load": "layercert.io",
    "Answer": "layercert.spec.verify",
    "Growth": "layercert.spec.growth",
    "SpecResult": "layercert.spec.verify",
    "check_spec": "layercert.spec.proofs",
    "load_spec": "layercert.spec.read",
    "measure_spec": "layercert.spec.growth",
    "verify_spec": "layercert.spec.verify",
    "Radius": "layercert.bench.table",
    "RadiusBench": "layercert.bench.table",
    "radiusbench": "layercert.bench.table",
    "measure": "layercert.run",
    "measure_all": "layercert.batch.many",
    "Measurements": "layercert.batch.many",
    "verify": "layercert.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'layercert' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
