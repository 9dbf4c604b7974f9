"""The table of RadiusBench: one row per network, input, norm and domain, as CSV and Parquet; and how it is loaded."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from layercert import shipped
from layercert.arrays import Vector
from layercert.errors import InputError, MissingPackageError, OptionError
from layercert.io import load
from layercert.io.datasets import Dataset, load_dataset
from layercert.network import Network
from layercert.system.files import whole_file
from layercert.system.gz import read_gzip

CSV, PARQUET = "radiusbench.csv.gz", "radiusbench.parquet"
NETWORKS, INPUTS, CERTIFICATES = "networks", "inputs", "certificates"
#: What a row is called: the distance is known; nothing unsafe exists in the domain; it lies between two bounds.
EXACT, ROBUST, BOUNDS = "exact", "robust", "bounds"
#: Where the part of RadiusBench that comes with the package lives.
SHIPPED = Path(shipped.__file__).parent / "data" / "radiusbench"


@dataclass(frozen=True)
class Radius:
    """One row: the distance from an input to the nearest point of another class, with what proves it.

    Attributes:
        collection: The data set, which names the file of inputs.
        network: Name of the network.
        network_sha256: Hash of its weights, `Network.sha256`.
        input: Position of the input in its file.
        input_sha256: Hash of the input, as float64 numbers.
        label: Its class.
        norm: l1, l2 or linf.
        low: Lower end of the domain of every coordinate; None for all points.
        high: Upper end of the domain.
        status: exact (upper is the distance), robust (no other class in the domain), or bounds.
        lower: Proved: nothing of another class is nearer.
        upper: Distance of the witness, which is of another class; inf without one.
        target: The class of the witness.
        witness_sha256: Hash of the witness, "" without one.
        method: The search that answered.
        seconds: Its seconds by the clock, where other work may have run on the machine; those of the processor where
            the limit was one of the processor.
        certificate_bytes: Size of the certificate, 0 where there is none.
        certificate_sha256: Hash of its file.
        checked: Whether the checker proved the certificate; every exact and every robust row says True.
        check_seconds: How long that took.
    """

    collection: str
    network: str
    network_sha256: str
    input: int
    input_sha256: str
    label: int
    norm: str
    low: float | None
    high: float | None
    status: str
    lower: float
    upper: float
    target: int | None
    witness_sha256: str
    method: str
    seconds: float
    certificate_bytes: int
    certificate_sha256: str
    checked: bool
    check_seconds: float

    @property
    def domain(self) -> tuple[float, float] | None:
        """(low, high), or None for all points."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def setting(self) -> str:
        """ "box" inside a domain, "free" without one."""
        return "free" if self.domain is None else "box"

    @property
    def name(self) -> str:
        """Network, norm, domain and input in one word: the name of the certificate in the sample."""
        return row_name(self.network, self.norm, self.setting, self.input)


def row_name(network: str, norm: str, setting: str, number: int) -> str:
    """What a row is called; no two rows of a table share it."""
    return f"{network}-{norm}-{setting}-{number}"


COLUMNS = tuple(field.name for field in fields(Radius))
_WHOLE = {"input", "label", "target", "certificate_bytes"}
_REAL = {"low", "high", "lower", "upper", "seconds", "check_seconds"}


@dataclass(frozen=True, eq=False)
class RadiusBench:
    """Exact radii with what they are about: `for row in bench`, `bench.select(..)`, `bench.to_pandas()`.

    Attributes:
        rows: The table.
        folder: Where it was read from, with networks and inputs beside it.
    """

    rows: tuple[Radius, ...]
    folder: Path

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Radius]:
        return iter(self.rows)

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of all networks, in the order of the table."""
        return tuple(dict.fromkeys(row.network for row in self.rows))

    def select(
        self,
        network: str | None = None,
        norm: str | None = None,
        setting: str | None = None,
        status: str | None = None,
    ) -> RadiusBench:
        """Some of the rows.

        Args:
            network: Only this network.
            norm: Only this norm: l1, l2 or linf.
            setting: "box" for rows inside a domain, "free" for those without one.
            status: "exact", "robust" or "bounds".

        Returns:
            A bench of the same networks and inputs with these rows.
        """
        wanted = {"network": network, "norm": norm, "setting": setting, "status": status}
        asked = {key: value for key, value in wanted.items() if value is not None}
        rows = (row for row in self.rows if all(getattr(row, key) == value for key, value in asked.items()))
        return RadiusBench(tuple(rows), self.folder)

    def network(self, name: str) -> Network:
        """The network of that name.

        Args:
            name: One of `networks`.

        Returns:
            The network; its hash is compared with the table's.

        Raises:
            InputError: The file is another network than the table is about.
        """
        if name not in self._networks:
            path = self.folder / NETWORKS / f"{name}.npz"
            network = load(path if path.exists() else shipped.path(name))
            expected = {row.network_sha256 for row in self.rows if row.network == name}
            if expected - {network.sha256}:
                raise InputError(f"{path.name} is not the network that the table is about; take the one that was built")
            self._networks[name] = network
        return self._networks[name]

    def inputs(self, collection: str) -> Dataset:
        """All inputs of a data set; a row's `input` is a position in it.

        Args:
            collection: A row's `collection`.

        Returns:
            The points with their classes.
        """
        if collection not in self._inputs:
            path = self.folder / INPUTS / f"{collection}.npz"
            self._inputs[collection] = load_dataset(path if path.exists() else shipped.path("digits"))
        return self._inputs[collection]

    def x(self, row: Radius) -> Vector:
        """The input of a row.

        Args:
            row: A row.

        Returns:
            The point, as a flat vector.

        Raises:
            InputError: The data set has no such input.
        """
        X = self.inputs(row.collection).X
        if not 0 <= row.input < len(X):
            raise InputError(f"the table has a row about input {row.input} of {row.collection}, which has {len(X)}")
        return np.asarray(X[row.input])

    def certificate(self, row: Radius) -> Path | None:
        """The certificate of a row.

        Args:
            row: A row.

        Returns:
            Its file; None where it is not in the sample that comes with the table.
        """
        path = self.folder / CERTIFICATES / f"{row.name}.cert"
        return path if path.exists() else None

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame, which needs `pip install 'layercert[pandas]'`.

        Returns:
            A DataFrame with a line per row.
        """
        try:
            import pandas
        except ImportError:
            raise MissingPackageError("pandas", "RadiusBench as a DataFrame", "pandas") from None
        return pandas.DataFrame([asdict(row) for row in self.rows], columns=list(COLUMNS))

    def __repr__(self) -> str:
        counts = Counter(row.status for row in self.rows)
        words = ", ".join(f"{counts[status]} {status}" for status in (EXACT, ROBUST, BOUNDS) if counts[status])
        return f"RadiusBench({len(self.rows)} radii of {len(self.networks)} networks: {words})"

    @cached_property
    def _networks(self) -> dict[str, Network]:
        return {}

    @cached_property
    def _inputs(self) -> dict[str, Dataset]:
        return {}


def radiusbench(folder: str | os.PathLike[str] | None = None) -> RadiusBench:
    """The radii that come with the package, or those of a folder that `layercert radiusbench build` made.

    Args:
        folder: Where a table was built; the shipped one if left out.

    Returns:
        The table with its networks and inputs.

    Raises:
        InputError: There is no table, or it is damaged.
    """
    where = SHIPPED if folder is None else Path(folder)
    return RadiusBench(tuple(read_csv(where / CSV)), where)


def read_csv(path: Path) -> Iterator[Radius]:
    """The rows of a table; a `.gz` is unpacked."""
    try:
        raw = read_gzip(path) if path.suffix == ".gz" else path.read_bytes()
        lines = list(csv.DictReader(io.StringIO(raw.decode())))
    except FileNotFoundError:
        raise InputError(f"no RadiusBench at '{path}'; make one with: layercert radiusbench build --out DIR") from None
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"'{path}' cannot be read: {error}; write it again with layercert radiusbench build") from None
    for number, line in enumerate(lines, 2):
        try:
            yield Radius(**{column: _value(column, line[column]) for column in COLUMNS})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"line {number} of '{path}' is no row of RadiusBench ({error}); expected the columns "
                f"{', '.join(COLUMNS)}"
            ) from None


def _value(column: str, text: str) -> Any:
    if text == "" and column in ("low", "high", "target"):
        return None
    if column == "checked":
        return {"True": True, "False": False}[text]
    if column in _WHOLE:
        return int(text)
    return float(text) if column in _REAL else text


def write_csv(rows: Iterable[Radius], path: Path) -> None:
    """Write the table, the same bytes for the same rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(getattr(row, column)) for column in COLUMNS] for row in rows)
    with whole_file(path) as file:
        file.write(gzip.compress(text.getvalue().encode(), mtime=0))


def _cell(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def write_parquet(rows: Iterable[Radius], path: Path) -> None:
    """The same as Parquet, which needs pyarrow; infinite upper bounds stay infinite."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError("pyarrow", "a table in Parquet", "bench") from None
    kinds = {
        **dict.fromkeys(_WHOLE, pyarrow.int64()), **dict.fromkeys(_REAL, pyarrow.float64()), "checked": pyarrow.bool_(),
    }  # fmt: skip
    schema = pyarrow.schema([(column, kinds.get(column, pyarrow.string())) for column in COLUMNS])
    table = pyarrow.Table.from_pylist([asdict(row) for row in rows], schema)
    half = path.with_name(path.name + ".part")
    pyarrow.parquet.write_table(table, half, compression="zstd")
    os.replace(half, path)


def check_rows(rows: Iterable[Radius]) -> None:
    """What every row must satisfy; a table that breaks it is refused."""
    for row in rows:
        if not 0.0 <= row.lower <= row.upper:
            raise OptionError(f"{row.name}: the bounds {row.lower:g} and {row.upper:g} are out of order")
        if row.status != BOUNDS and not row.checked:
            raise OptionError(f"{row.name} is called {row.status} without a checked certificate")
        if row.status == EXACT and not math.isfinite(row.upper):
            raise OptionError(f"{row.name} is called exact without a witness")
