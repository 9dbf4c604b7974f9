"""What a run answers. A status is its meaning; bounds are two-sided and the lower one is proved."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from html import escape
from typing import Any

import numpy as np

from layercert.arrays import Vector
from layercert.attack.strict import Holds
from layercert.certificate.claim import Certificate
from layercert.certificate.whole import WholeCertificate
from layercert.pictures import data_uri, difference, image_of, picture

#: A gap that nobody asked for: the 1e-6 of an exact answer, and what the model's own runtime may ask of its witness
#: (attack/strict.py, STRETCH).
NEARLY = 2e-6


@dataclass(frozen=True)
class Change:
    """One input of a witness that differs from the input asked about.

    Attributes:
        name: The name of the input, or its position where it has none.
        position: Its position.
        before: Its value in the input.
        after: Its value in the witness.
    """

    name: str
    position: int
    before: float
    after: float

    @property
    def by(self) -> float:
        """after - before."""
        return self.after - self.before


class Changes(tuple[Change, ...]):
    """The changes that make a witness of an input, the largest first. Printed, they are a table."""

    def __str__(self) -> str:
        if not self:
            return "nothing changes"
        lines = [("input", "from", "to", "change")]
        lines += [(row.name, f"{row.before:.6g}", f"{row.after:.6g}", f"{row.by:+.6g}") for row in self]
        wide = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join(
            "  ".join([line[0].ljust(wide[0]), *(c.rjust(n) for c, n in zip(line[1:], wide[1:], strict=True))])
            for line in lines
        )


class Status(StrEnum):
    """The answer of `measure`.

    Attributes:
        EXACT: The nearest unsafe point was found and proved nearest, up to the gap asked for.
        ROBUST: There is no unsafe point within the radius, proved.
        UNDECIDED: The search stopped early: lower <= distance <= upper.
    """

    EXACT = "exact"
    ROBUST = "robust"
    UNDECIDED = "undecided"

    @property
    def meaning(self) -> str:
        """The status as a sentence."""
        return {
            Status.EXACT: "nearest unsafe point found and proved nearest",
            Status.ROBUST: "no unsafe point within the radius, proved",
            Status.UNDECIDED: "stopped early; lower <= distance <= upper",
        }[self]


class Verdict(StrEnum):
    """The answer of `verify`.

    Attributes:
        ROBUST: There is no unsafe point within the radius, proved.
        NOT_ROBUST: The witness is one.
        UNDECIDED: The search stopped early, or ended with its bounds apart.
    """

    ROBUST = "robust"
    NOT_ROBUST = "not_robust"
    UNDECIDED = "undecided"


@dataclass(frozen=True, eq=False)
class Result:
    """lower <= distance to the nearest unsafe point <= upper; the witness is an unsafe point at distance upper.

    Attributes:
        status: What was proved: a `Status` of `measure`, a `Verdict` of `verify`.
        lower: Proved: no unsafe point is nearer.
        upper: The distance of the witness, inf without one.
        witness: The nearest unsafe point found, as a flat vector.
        target: The class of the witness.
        label: The class asked about.
        norm: Name of the norm.
        radius: How far was asked, inf for no limit.
        method: Name of the search.
        programs: Convex programs solved, counted as the paper counts them.
        seconds: Wall seconds, without compiling.
        note: What else there is to say, such as why an answer is undecided.
        interrupted: Whether Ctrl-C ended the search.
        solved_by: Programs answered by each solver.
        fallbacks: Programs that a solver could not answer and handed on.
        certificate: The proof, where one was asked for and could be made.
        holds: In which arithmetics the witness is misclassified, None without a witness.
        x: The input, as a flat vector.
        names: The names of the inputs, () where they have none.
        weights: Those of the norm, None for a plain one.
        shape: The shape in which the input was given, () where it was not.
    """

    status: Status | Verdict
    lower: float
    upper: float
    witness: Vector | None
    target: int | None
    label: int | None
    norm: str
    radius: float
    method: str
    programs: int
    seconds: float
    note: str = ""
    interrupted: bool = False
    solved_by: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    certificate: Certificate | WholeCertificate | None = None
    holds: Holds | None = None
    x: Vector | None = None
    names: tuple[str, ...] = ()
    weights: Vector | None = None
    shape: tuple[int, ...] = ()

    def with_witness_of(self, other: Result) -> Result:
        """This answer with the witness of another one to the same question, and all that belongs to it.

        Args:
            other: The other answer.

        Returns:
            A result with that witness, its distance, its class and in which arithmetics it holds.
        """
        return replace(self, upper=other.upper, witness=other.witness, target=other.target, holds=other.holds)

    @property
    def witness_as_input(self) -> Vector | None:
        """The witness in the shape in which the input was given; None without one."""
        return None if self.witness is None else self.witness.reshape(self.shape or self.witness.shape)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, and the input beside the witness, as pictures or as a table."""
        text = f"<p>{escape(str(self))}</p>"
        if self.witness is None or self.x is None:
            return text
        if self.names:
            rows = "".join(
                f"<tr><td>{escape(c.name)}</td><td>{c.before:.6g}</td><td>{c.after:.6g}</td><td>{c.by:+.6g}</td></tr>"
                for c in self.changes
            )
            head = "<tr><th>input</th><th>from</th><th>to</th><th>change</th></tr>"
            return f"{text}<table>{head}{rows}</table>"
        shape = image_of(self.shape, len(self.x))
        if shape is None:
            return text
        low, high = float(min(self.x.min(), self.witness.min())), float(max(self.x.max(), self.witness.max()))
        shown = {
            "input": picture(self.x, shape, low, high),
            "witness": picture(self.witness, shape, low, high),
            "difference": difference(self.x, self.witness, shape),
        }
        style = "width:140px;image-rendering:pixelated"
        images = (f'<img alt="{name}" title="{name}" style="{style}" src="{data_uri(p)}">' for name, p in shown.items())
        return text + "<p>" + " ".join(images) + "</p>"

    @property
    def changes(self) -> Changes:
        """What the witness changes: a row per input that differs, the largest change (as the norm's weights count it)
        first; it prints as a table."""
        if self.witness is None or self.x is None:
            return Changes(())
        moved = [int(i) for i in np.flatnonzero(self.witness != self.x)]
        rows = [
            Change(self.names[i] if self.names else str(i), i, float(self.x[i]), float(self.witness[i])) for i in moved
        ]
        weights = np.ones_like(self.x) if self.weights is None else self.weights
        return Changes(sorted(rows, key=lambda row: -abs(row.by) * weights[row.position]))

    @property
    def gap(self) -> float:
        """How far apart the bounds are: (upper - lower) / upper. 0 at distance 0, inf without a witness."""
        if math.isinf(self.upper):
            return math.inf
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __str__(self) -> str:
        classes = "" if self.target is None or self.label is None else f" ({self.label} -> {self.target})"
        if self.status == Status.EXACT:
            text = f"exact: {self.upper:.6g}{classes}"
            if self.gap > NEARLY:  # asked for, and worth a word
                text = f"exact up to {self.gap:.2g}: {self.lower:.6g} <= distance <= {self.upper:.6g}{classes}"
        elif self.status == Verdict.NOT_ROBUST:
            text = f"not robust: another class at distance {self.upper:.6g}{classes}"
        elif self.status == Status.ROBUST:
            limit = self.radius if math.isfinite(self.radius) else self.lower
            text = f"robust: nothing within {limit:.6g}"
        else:
            text = f"undecided: {self.lower:.6g} <= distance <= {self.upper:.6g}{classes}"
        text += f", {self.norm}, {self.method}, {self.programs} programs, {self.seconds:.2f} s"
        return f"{text}; {self.note}" if self.note else text

    def as_dict(self, witness: bool = True) -> dict[str, Any]:
        """Plain values for JSON; infinite numbers become None.

        Args:
            witness: Whether the coordinates of the witness are wanted.

        Returns:
            A dictionary of numbers, strings and lists.
        """
        return {
            "status": str(self.status),
            "lower": _finite(self.lower),
            "upper": _finite(self.upper),
            "gap": _finite(self.gap),
            "label": self.label,
            "target": self.target,
            "norm": self.norm,
            "radius": _finite(self.radius),
            "method": self.method,
            "programs": self.programs,
            "seconds": self.seconds,
            "note": self.note,
            "interrupted": self.interrupted,
            "fallbacks": dict(self.fallbacks),
            "holds": None if self.holds is None else asdict(self.holds),
            "witness": None if self.witness is None or not witness else self.witness.tolist(),
            **({"changes": {row.name: [row.before, row.after] for row in self.changes}} if self.names else {}),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
