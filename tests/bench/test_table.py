"""The shipped table says what it promises, loads, and survives being written and read."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from layercert.batch.plan import input_hash
from layercert.bench.collections import OWN, collections_of
from layercert.bench.gather import status_of
from layercert.bench.table import BOUNDS, CSV, EXACT, PARQUET, SHIPPED, check_rows, read_csv, write_csv, write_parquet
from layercert.errors import InputError, OptionError


@pytest.fixture(scope="module")
def bench() -> lc.RadiusBench:
    return lc.radiusbench()


def test_the_shipped_table_is_large_and_every_exact_row_was_checked(bench: lc.RadiusBench) -> None:
    assert len(bench) >= 18000 and len(bench.networks) >= 20
    assert len({row.input_sha256 for row in bench}) >= 2000, "no point counts twice"
    assert {row.norm for row in bench} == {"l1", "l2", "linf"}
    assert {row.setting for row in bench} == {"box", "free"}
    check_rows(bench)
    assert all(row.certificate_bytes > 0 for row in bench if row.status == EXACT)
    assert len({row.name for row in bench}) == len(bench), "a question is there once"


def test_about_json_counts_what_the_table_has(bench: lc.RadiusBench) -> None:
    about = json.loads((SHIPPED / "about.json").read_text())
    assert about["rows"] == len(bench) and about["networks"] == len(bench.networks)
    assert about["exact"] == len(bench.select(status=EXACT)) and about["certificates_checked"] >= about["exact"]
    assert about["sha256"] == hashlib.sha256((SHIPPED / CSV).read_bytes()).hexdigest()


def test_networks_and_inputs_are_those_of_the_table(bench: lc.RadiusBench) -> None:
    for name in bench.networks:
        rows = bench.select(network=name).rows
        assert {row.network_sha256 for row in rows} == {bench.network(name).sha256}
        assert all(input_hash(bench.x(row)) == row.input_sha256 for row in rows[:20])
        assert bench.network(name).classify(bench.x(rows[0])) == rows[0].label


def test_a_domain_only_makes_a_distance_larger(bench: lc.RadiusBench) -> None:
    free = {(r.network, r.norm, r.input): r for r in bench.select(setting="free", status=EXACT)}
    pairs = [(r, free[key]) for r in bench.select(setting="box") if (key := (r.network, r.norm, r.input)) in free]
    assert len(pairs) > 1500
    assert all(inside.upper >= outside.lower for inside, outside in pairs)


def test_norms_are_in_their_order(bench: lc.RadiusBench) -> None:
    exact = {(r.network, r.setting, r.input, r.norm): r for r in bench.select(status=EXACT)}
    for (network, setting, number, norm), row in exact.items():
        larger = exact.get((network, setting, number, "l2" if norm == "linf" else "l1"))
        if norm != "l1" and larger is not None:  # |v|_inf <= |v|_2 <= |v|_1
            assert row.lower <= larger.upper * (1 + 1e-9)


def test_the_table_is_the_same_after_writing_and_reading(bench: lc.RadiusBench, tmp_path: Path) -> None:
    write_csv(bench.rows, tmp_path / CSV)
    assert tuple(read_csv(tmp_path / CSV)) == bench.rows
    assert (tmp_path / CSV).read_bytes() == (SHIPPED / CSV).read_bytes()


def test_parquet_says_the_same_as_csv(bench: lc.RadiusBench, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'layercert[bench]'")
    write_parquet(bench.rows[:50], tmp_path / PARQUET)
    for path, rows in ((tmp_path / PARQUET, bench.rows[:50]), (SHIPPED / PARQUET, bench.rows)):
        assert [lc.Radius(**line) for line in parquet.read_table(path).to_pylist()] == list(rows)


def test_pandas_gets_the_columns(bench: lc.RadiusBench) -> None:
    pytest.importorskip("pandas", reason="a DataFrame needs pandas: pip install 'layercert[pandas]'")
    frame = bench.select(norm="linf").to_pandas()
    assert set(frame["norm"]) == {"linf"} and np.isfinite(frame["lower"]).all()


def test_exact_and_robust_need_a_checked_proof(bench: lc.RadiusBench) -> None:
    assert status_of("exact", 1.0, 1.0, proved=1.0) == EXACT
    assert status_of("exact", 1.0, 1.0, proved=0.0) == BOUNDS, "no certificate, or one that the checker refused"
    assert status_of("exact", 1.0, 1.0, proved=0.999) == BOUNDS
    assert status_of("robust", 5.0, float("inf"), proved=5.0) == "robust"
    assert status_of("undecided", 1.0, 2.0, proved=1.0) == BOUNDS
    row = bench.select(status=EXACT).rows[0]
    with pytest.raises(OptionError, match="is called exact without a checked certificate"):
        check_rows([replace(row, checked=False)])
    with pytest.raises(OptionError, match="out of order"):
        check_rows([replace(row, lower=row.upper * 2)])


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no RadiusBench at .*; make one with: layercert radiusbench build"):
        lc.radiusbench(tmp_path)
    (tmp_path / CSV).write_bytes(gzip.compress(b"network,norm\nfoo,linf\n"))
    with pytest.raises(InputError, match=r"line 2 of .* is no row of RadiusBench"):
        lc.radiusbench(tmp_path)
    (tmp_path / CSV).write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        lc.radiusbench(tmp_path)
    whole = gzip.compress(b"network,norm\n" + bytes(range(32, 120)) * 50)
    damaged = bytearray(whole)
    damaged[12:20] = b"\xff" * 8
    bomb = gzip.compress(bytes(1 << 27))  # 128 MiB of zeros
    for raw in (bytes(damaged), whole[:-9], bomb, gzip.compress(b'a,b\n1,"' + b"2" * 200_000), gzip.compress(b"\xff")):
        (tmp_path / CSV).write_bytes(raw)
        with pytest.raises(InputError, match="cannot be read"):
            lc.radiusbench(tmp_path)


def test_a_row_about_an_input_that_is_not_there_is_told(bench: lc.RadiusBench) -> None:
    with pytest.raises(InputError, match=r"a row about input 9999 of \w+, which has"):
        bench.x(replace(bench.rows[0], input=9999))


def test_what_a_user_added_is_read_with_care(tmp_path: Path) -> None:
    for text in ("[1, 2", "[1, 2]", "3", '{"mine": 1}', '{"mine": {"networks": [1], "domains": []}}', "[" * 100_000):
        (tmp_path / OWN).write_text(text)
        with pytest.raises(InputError, match="is damaged"):
            collections_of(tmp_path)
