"""What a sentence says was proved is all that was proved: a small domain or other weights do not hide behind a word."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layercert as lc
from helpers.standalone import alone
from layercert.certificate.claim import Certificate, load_certificate
from layercert.network import Network


@pytest.fixture(scope="module")
def real() -> tuple[Network, Certificate]:
    """In [0, 1], with a witness."""
    rng = np.random.default_rng(5)
    net = Network.from_arrays([rng.normal(size=(6, 3)), rng.normal(size=(2, 6))], [rng.normal(size=6), np.zeros(2)])
    r = lc.measure(net, rng.uniform(0.3, 0.7, 3), "linf", domain=(0, 1), method="adaptive", certificate=True)
    assert r.certificate is not None and r.certificate.witness is not None
    return net, r.certificate


def sentences(net: Network, certificate: Certificate, folder: Path, capsys: Any) -> list[str]:
    """Of the package's checker and of the stand-alone one."""
    net.save(folder / "network.npz")
    certificate.save(folder / "proof.npz")
    assert alone.main([str(folder / "proof.npz"), str(folder / "network.npz")]) == 0
    return [str(lc.check(net, certificate)), capsys.readouterr().out]


def test_the_domain_is_named(real: tuple[Network, Certificate], tmp_path: Path, capsys: Any) -> None:
    package, other = sentences(*real, tmp_path, capsys)
    assert " of x inside the domain [0, 1] is given class " in package
    assert " inside the domain (low 0 to 0, high 1 to 1, width 1 to 1) is given class " in other


def test_a_domain_of_next_to_nothing_shows(real: tuple[Network, Certificate], tmp_path: Path, capsys: Any) -> None:
    """Within a radius of 100, says the claim; but the points that count are as good as x itself."""
    net, certificate = real
    small = (certificate.x - [1e-9, 0, 0], certificate.x)
    forged = replace(certificate, radius=100.0, domain=small, witness=None, upper=np.inf)
    for sentence in sentences(net, forged, tmp_path, capsys):
        assert "distance 100 of x inside the domain (low" in sentence
        assert re.search(r"width 0 to [0-9.]+e-(09|10)\) is given class", sentence)


def test_weights_are_named(real: tuple[Network, Certificate], tmp_path: Path, capsys: Any) -> None:
    net, certificate = real
    weights = np.array([1.0, 2.0, 0.5])
    r = lc.verify(net, certificate.x, 0.01, "l2", weights=weights, method="adaptive", certificate=True)
    assert r.certificate is not None
    package, other = sentences(net, r.certificate, tmp_path, capsys)
    assert "weighted l2 distance 0.01 of x (weights 0.5 to 2) is given class " in package
    assert "l_2 (weights 0.5 to 2) distance 0.01 of x is given class " in other


def test_one_end_of_a_domain_alone_is_told(real: tuple[Network, Certificate], tmp_path: Path, capsys: Any) -> None:
    """The package's reader refuses such a file; whoever takes the one end as a domain must say so."""
    net, certificate = real
    unbounded = replace(certificate, witness=None, upper=np.inf, radius=1e-6)
    sentences(net, unbounded, tmp_path, capsys)
    with np.load(tmp_path / "proof.npz") as file:
        np.savez(tmp_path / "half.npz", **{name: file[name] for name in file.files if name != "low"})
    with pytest.raises(lc.LayerCertError, match="it lacks 'low'"):
        load_certificate(tmp_path / "half.npz")
    assert alone.main([str(tmp_path / "half.npz"), str(tmp_path / "network.npz")]) == 0
    assert "inside the domain (low -inf to -inf, high 1 to 1, width inf to inf)" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["proof.npz"], ["a.npz", "b.npz", "c.npz"], ["a.npz", "b.npz", "--exakt"]])
def test_the_stand_alone_checker_says_how_it_is_called(arguments: list[str], capsys: Any) -> None:
    assert alone.main(arguments) == 2
    assert "check_certificate.py PROOF.npz NETWORK.npz [--exact]" in capsys.readouterr().err


def test_no_number_is_rounded(tmp_path: Path, capsys: Any) -> None:
    """Unsafe points begin at 1 in any norm. With nine digits a radius next below would be told as 1, and with six p =
    1.9999999 as the norm l_2, whose ball is larger."""
    net = Network.from_arrays([np.array([[1.0, 0.0], [0.0, 0.0]])], [np.array([0.0, 1.0])])
    radius, p = 1 - 1e-11, 2 - 1e-7
    result = lc.verify(net, np.zeros(2), radius, p, method="adaptive", certificate=True)
    assert result.certificate is not None
    certificate = replace(result.certificate, radius=radius, witness=None, upper=np.inf)
    package, other = sentences(net, certificate, tmp_path, capsys)
    assert f"l{p} distance {radius} of x" in package
    told = re.search(r"l_([0-9.]+) distance ([0-9.]+) of x", other)
    assert told is not None and [float(part) for part in told.groups()] == [p, radius]
