"""Files with changed bytes: an error of ours or an answer, never anything else, and never a false proof."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.random import Generator

import layercert as lc
from helpers.properties import random_property, write_onnx
from layercert.errors import LayerCertError
from soundness.judge import claim_faults
from soundness.kind import Outcome
from soundness.proofs import made
from soundness.questions import plain

KINDS = ["certificate", "network", "onnx", "property", "data"]


def files(rng: Generator) -> Outcome:
    kind = KINDS[int(rng.integers(len(KINDS)))]
    question = plain(rng)
    network = question.network
    with tempfile.TemporaryDirectory(prefix="soundness") as name:
        folder = Path(name)
        suffix = {"onnx": ".onnx", "property": ".vnnlib"}.get(kind, ".npz")
        good, bad = folder / f"good{suffix}", folder / f"bad{suffix}"
        if kind == "certificate":
            proof = made(rng, question)
            if proof is None:
                return Outcome("none made", [])
            proof.save(good)
        elif kind == "network":
            network.save(good)
        elif kind == "onnx":
            write_onnx(network, good)
        elif kind == "property":
            good.write_text(random_property(int(rng.integers(2**32))).text(int(rng.integers(1, 3))))
        else:
            np.savez(good, X=rng.normal(size=(3, 4)), y=np.arange(3))
        bad.write_bytes(damaged(rng, good.read_bytes()))
        try:
            return _read(kind, bad, network, rng)
        except LayerCertError:
            return Outcome("refused", [])


def _read(kind: str, path: Path, network: lc.Network, rng: Generator) -> Outcome:
    if kind == "certificate":
        proof = lc.load_certificate(path)
        report = lc.check(network, proof)
        return Outcome(
            "accepted" if report.ok else "rejected", claim_faults(network, proof, report, rng) if report.ok else []
        )
    if kind in ("network", "onnx"):
        lc.load(path)
    elif kind == "property":
        lc.load_spec(path)
    else:
        from layercert.io.datasets import load_dataset

        load_dataset(path)
    return Outcome("read", [])


def damaged(rng: Generator, data: bytes) -> bytes:
    """Cut off, bytes set or bits flipped; in archives also inside a member, with a correct checksum."""
    how = int(rng.integers(4))
    if how == 0:
        return data[: int(rng.integers(len(data)))]
    if how == 3 and zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = list(members)[int(rng.integers(len(members)))]
        members[name] = _changed(rng, members[name], set_bytes=True)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for each, content in members.items():
                archive.writestr(each, content)
        return out.getvalue()
    return _changed(rng, data, set_bytes=how == 1)


def _changed(rng: Generator, data: bytes, set_bytes: bool) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if changed:
            at = int(rng.integers(len(changed)))
            changed[at] = int(rng.integers(256)) if set_bytes else changed[at] ^ (1 << int(rng.integers(8)))
    return bytes(changed)
