"""RadiusBench: exact radii with certificates, that attacks and verifiers can be measured by.

bench = radiusbench()                             # what comes with the package
build(Build(out=Path("bench"), inputs=50))        # more of it; goes on after kill -9
"""

from layercert.bench.build import Build, build
from layercert.bench.table import Radius, RadiusBench, radiusbench

__all__ = ["Build", "Radius", "RadiusBench", "build", "radiusbench"]
