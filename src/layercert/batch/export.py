"""The results of a run as CSV, JSON lines or Parquet; the suffix of the file decides."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from layercert.batch.errors import RunError
from layercert.batch.store import Store
from layercert.errors import MissingPackageError, OptionError

COLUMNS = (
    "job", "model", "model_sha256", "position", "name", "input_sha256", "true_label", "norm", "method", "status",
    "lower", "upper", "label", "target", "programs", "seconds", "note", "certificate", "worker", "session", "finished",
    "used", "holds",
)  # fmt: skip


def export(store: Store, path: Path) -> int:
    """Write all finished jobs; the number of rows. CSV leaves the witness out."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise unknown_format(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return writer(store, path)
    except OSError as error:
        raise RunError(f"cannot write '{path}': {error.strerror or error}") from None


def unknown_format(path: Path) -> OptionError:
    return OptionError(f"cannot export to '{path}': expected a name that ends in {', '.join(WRITERS)}")


def _csv(store: Store, path: Path) -> int:
    count = 0
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        for row in store.rows():
            writer.writerow([row[column] for column in COLUMNS])
            count += 1
    return count


def _json_lines(store: Store, path: Path) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as handle:
        for row in store.rows():
            witness = store.witness(row["job"])
            plain = {column: _finite(row[column]) for column in COLUMNS}
            handle.write(json.dumps({**plain, "witness": None if witness is None else witness.tolist()}) + "\n")
            count += 1
    return count


def _parquet(store: Store, path: Path) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingPackageError("pyarrow", "writing Parquet", "parquet") from None
    integer, number, text = pa.int64(), pa.float64(), pa.string()
    kinds = {
        **dict.fromkeys(COLUMNS, text),
        **dict.fromkeys(("job", "position", "true_label", "label", "target", "programs", "session"), integer),
        **dict.fromkeys(("lower", "upper", "seconds"), number),
    }
    schema = pa.schema([*((c, kinds[c]) for c in COLUMNS), ("witness", pa.list_(number))])
    rows = [{**{c: row[c] for c in COLUMNS}, "witness": store.witness(row["job"])} for row in store.rows()]
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return len(rows)


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


WRITERS: dict[str, Callable[[Store, Path], int]] = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
