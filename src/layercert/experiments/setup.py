"""What the paper ran: networks, methods, norms, radii. An experiment is a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from layercert.errors import OptionError, unknown
from layercert.programs.stacks import STACKS

#: The twelve networks of the tables. The paper's text names 3x50 alone and gives the range ("two to five hidden layers,
#: with between 10 to 50 neurons"); its tables are pictures. The list is that of the project.
SIZES = ("2x10", "2x20", "2x50", "3x10", "3x20", "3x50", "4x10", "4x20", "4x30", "5x10", "5x20", "5x30")
#: Appendix D, "Experiments for Larger Networks"; all four are named there.
LARGE_SIZES = ("8x20", "6x30", "5x50", "5x60")
#: Section 6, "Methods evaluated".
PAPER_METHODS = (
    "geocert", "geocert-lip", "layercert-basic", "layercert-ia", "layercert-crown", "layercert-both",
)  # fmt: skip
#: Not in the paper's tables: Algorithm 4, which the paper describes without measuring it, and our own search.
ADDITIONS = ("layercert-recursive", "adaptive")
LATE = "layercert-basic-late"
FAMILIES = ("l1", "plain")
RADIUS = {"linf": 0.3, "l2": 3.0}
#: The paper's limit for one input, its number of inputs, and of hard inputs on the larger networks.
TIME_LIMIT, INPUTS, HARD = 1800.0, 100, 10
#: Inputs are asked in parts, each with every method: a run stopped half way has complete parts to compare.
PART = 20


class NoNetworksError(OptionError):
    """None of the networks of an experiment can be had."""


@dataclass(frozen=True)
class Experiment:
    """Networks x inputs x methods in one norm; `pool` names the runs it shares with other experiments."""

    name: str
    title: str
    pool: str
    norm: str
    methods: tuple[str, ...]
    sizes: tuple[str, ...] = SIZES

    @property
    def radius(self) -> float:
        return RADIUS[self.norm]


_ALL = PAPER_METHODS + ADDITIONS
EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment("table1", "Table 1: averages in l_inf", "linf", "linf", _ALL),
        Experiment("table-l2", "Appendix D: averages in l_2", "l2", "l2", _ALL),
        Experiment("ablation", "Ablation: when a pattern is marked as seen", "linf", "linf",
                   ("geocert", "layercert-basic", LATE)),
        Experiment("profiles", "Figure: performance profiles", "linf", "linf",
                   ("geocert-lip", "layercert-both", "adaptive")),
        Experiment("large", "Larger networks: bounds over time", "large", "linf",
                   ("geocert-lip", "layercert-both", "adaptive"), LARGE_SIZES),
    )
}  # fmt: skip
EXAMPLE = "example"
CHOICES = (*EXPERIMENTS, EXAMPLE, "all")


@dataclass(frozen=True)
class Settings:
    """Everything that a reproduction can be asked for besides its name.

    Attributes:
        out: The folder of runs and page; what is there is continued.
        time_limit: Seconds per question.
        inputs: How many of the 100 digits.
        jobs: Worker processes.
        stack: The solvers for distance programs.
        family: The networks: "l1" or "plain".
        sizes: Some of the experiment's networks; None for all of them.
        nets: A folder of networks.
        mnist: A folder of MNIST to train them from.
        cpu_time: Whether the time limit counts CPU seconds of the worker instead of those of the clock.
        first: Seconds per question in a first pass over all inputs; only what it leaves open is asked with the time
            limit. None for a single pass.
        recorded: The results.csv of an earlier reproduction, whose answers are taken where a few of them come out the
            same when they are asked anew; None to ask everything.
    """

    out: Path
    time_limit: float = TIME_LIMIT
    inputs: int = INPUTS
    jobs: int = 1
    stack: str = "default"
    family: str = "l1"
    sizes: tuple[str, ...] | None = None
    nets: Path | None = None
    mnist: Path | None = None
    cpu_time: bool = False
    first: float | None = None
    recorded: Path | None = None

    def __post_init__(self) -> None:
        if not self.time_limit > 0:
            raise OptionError(f"the time limit must be above 0 seconds, got {self.time_limit:g}")
        if self.first is not None and not 0 < self.first < self.time_limit:
            raise OptionError(
                f"a first pass takes fewer seconds per question than the time limit ({self.time_limit:g}), and more "
                f"than 0; got {self.first:g}"
            )
        if not 1 <= self.inputs <= INPUTS:
            raise OptionError(
                f"the number of inputs must be from 1 to {INPUTS} (all that are shipped), got {self.inputs}"
            )
        if self.stack not in STACKS:
            raise unknown("solver stack", self.stack, STACKS)
        if self.family not in FAMILIES:
            raise unknown("family of networks", self.family, FAMILIES)
        for size in self.sizes or ():
            if size not in SIZES + LARGE_SIZES:
                raise unknown("network", size, SIZES + LARGE_SIZES)
        if self.nets is not None and self.mnist is not None:
            raise OptionError("networks come from --nets DIR or are trained from --mnist DIR; give one of them")
        if self.recorded is not None and not self.cpu_time:
            raise OptionError("the seconds of recorded answers are CPU seconds: --from goes with --cpu-time")
        if self.recorded is not None and (self.nets is not None or self.mnist is not None):
            raise OptionError("recorded answers are about the shipped networks: --from goes without --nets and --mnist")

    def parts(self) -> list[Settings]:
        """The run in parts, so that what is there when it is stopped can be compared.

        Returns:
            The same settings for the first 20 inputs, the first 40 and so on, up to all; where there is a first pass,
            these once with it and then once without.
        """
        passes = [self] if self.first is None else [self, replace(self, first=None)]
        return [replace(s, inputs=n) for s in passes for n in (*range(PART, self.inputs, PART), self.inputs)]


def chosen(what: str) -> tuple[list[Experiment], bool]:
    """The experiments behind a name on the command line, and whether the example of Appendix A is among them."""
    if what not in CHOICES:
        raise unknown("experiment", what, CHOICES)
    if what == EXAMPLE:
        return [], True
    return (list(EXPERIMENTS.values()), True) if what == "all" else ([EXPERIMENTS[what]], False)
