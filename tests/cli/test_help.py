"""What a user reads before anything works: help, hints, completion."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from layercert.batch.plan import memory_bytes
from layercert.cli import BAD, OK, _parser, main
from layercert.cli.completion import SHELLS, options_of
from layercert.cli.options import METHODS
from layercert.errors import OptionError
from layercert.methods import METHODS as KNOWN
from layercert.network import Network

Capture = pytest.CaptureFixture[str]


def test_help_lists_every_method() -> None:
    assert set(METHODS) == set(KNOWN)


@pytest.mark.parametrize("command", [[], ["measure"], ["verify"], ["batch"]])
def test_help_shows_examples(command: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    examples = out.partition("examples:\n")[2].splitlines()
    assert examples and all(line.startswith("  layercert ") for line in examples)
    for line in examples:  # each is a command that the parser takes
        _parser().parse_args(line.split()[1:])


def test_eps_points_to_the_radius(capsys: Capture) -> None:
    for command in ("measure", "verify"):
        assert main([command, "mnist17_l1_2x20", "--input", "digits", "--radius", "1", "--eps", "0.03"]) == BAD
        assert "--eps belongs to batch; here it is --radius 0.03" in capsys.readouterr().err


def test_a_memory_size_that_is_none() -> None:
    with pytest.raises(OptionError, match="cannot read the memory size 'lots'; expected a number with a unit: 500M"):
        memory_bytes("lots")


def test_the_log_names_inputs_by_their_place_in_the_data(tmp_path: object, capsys: Capture) -> None:
    Network.from_arrays([[[1.0], [-1.0]]], [[0.0, 0.5]]).save(f"{tmp_path}/line.npz")
    np.savez(f"{tmp_path}/X.npz", X=np.arange(10.0)[:, None], y=np.zeros(10, int))
    where = ["--data", f"{tmp_path}/X.npz", "--out", f"{tmp_path}/run", "--index", "7,3"]
    assert main(["batch", f"{tmp_path}/line.npz", *where, "--log"]) == OK
    err = capsys.readouterr().err
    assert "input 7 model line linf" in err and "input 3 model line linf" in err


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command_and_option(shell: str, capsys: Capture) -> None:
    assert main(["completion", shell]) == OK
    text = capsys.readouterr().out
    for command, options in options_of(_parser()).items():
        assert command in text
        for option in options:
            assert option.removeprefix("--") in text


@pytest.mark.skipif(sys.platform == "win32", reason="no bash")
def test_completion_in_bash(capsys: Capture) -> None:
    assert main(["completion", "bash"]) == OK
    asked = """
        tell() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _layercert; echo "${COMPREPLY[@]}"; }
        tell layercert me
        tell layercert measure --norm l
        tell layercert batch --sal
        tell layercert measure model.onnx --method geocert-
    """
    done = subprocess.run(["bash", "-c", capsys.readouterr().out + asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["measure", "l1 l2 linf", "--salvage", "geocert-lip"]


def test_an_unknown_shell(capsys: Capture) -> None:
    assert main(["completion", "cmd"]) == BAD
    assert "unknown shell 'cmd'; known: bash, fish, zsh" in capsys.readouterr().err
