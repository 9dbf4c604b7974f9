"""GeoCert-Lip against LayerCert-Both, network by network: the paper says that the second solves fewer programs."""

from __future__ import annotations

from dataclasses import dataclass

from layercert.experiments.runs import Pool
from layercert.experiments.tables import Cell, Table

LIP, BOTH = "geocert-lip", "layercert-both"
METHODS = (LIP, BOTH)
LEAD = "**GeoCert-Lip or LayerCert-Both?** The paper says that the second always solves fewer programs."
WORDS = (
    "Programs, summed over the inputs that both methods finished. 'Fewer': on how many inputs a method finished with "
    "fewer programs than the other one, which may have been stopped at the limit. 'Alone': inputs that only one of "
    "them finished. 'Both on all': LayerCert-Both's programs on all inputs that it finished; 'Lip there': those of "
    "GeoCert-Lip on the same inputs, at least, because a search that was stopped counts with what it had solved. "
    "What decides between the two: docs/geocert-lip.md."
)


@dataclass(frozen=True)
class Duel:
    """The two methods on the inputs of one network."""

    net: str
    lip: int  # programs, on the inputs that both finished
    both: int
    shared: int
    inputs: int
    lip_fewer: int  # inputs on which it finished with fewer; a search that was stopped would have solved still more
    both_fewer: int
    lip_alone: int
    both_alone: int
    both_all: int  # programs, on the inputs that LayerCert-Both finished
    lip_least: int  # those of GeoCert-Lip there; what it had solved when it was stopped is the least it needs

    @property
    def lip_ahead(self) -> bool:
        """Does GeoCert-Lip need fewer? Not where it had solved more already when it was stopped."""
        return self.lip < self.both and self.lip_least <= self.both_all

    @property
    def ratio(self) -> float | None:
        """LayerCert-Both's programs over GeoCert-Lip's; above 1 GeoCert-Lip needs fewer."""
        return self.both / self.lip if self.shared and self.lip else None


def duels(pool: Pool) -> list[Duel]:
    """One for each network; none without both methods."""
    return [_duel(pool, net) for net in pool.nets] if set(METHODS) <= set(pool.methods) else []


def _duel(pool: Pool, net: str) -> Duel:
    a, b = (pool.select(net, method) for method in METHODS)
    pairs = [(a[i], b[i]) for i in a if i in b]
    shared = [(x.programs, y.programs) for x, y in pairs if x.solved and y.solved]
    return Duel(
        net,
        sum(x for x, _ in shared),
        sum(y for _, y in shared),
        len(shared),
        len(pairs),
        sum(x.solved and x.programs < y.programs for x, y in pairs),
        sum(y.solved and y.programs < x.programs for x, y in pairs),
        sum(x.solved and not y.solved for x, y in pairs),
        sum(y.solved and not x.solved for x, y in pairs),
        sum(y.programs for _, y in pairs if y.solved),
        sum(x.programs for x, y in pairs if y.solved),
    )


def duel_line(found: list[Duel], norm: str) -> str:
    """Who solves fewer programs, in a sentence."""
    tested = [d for d in found if d.ratio is not None]
    if not tested:
        return ""
    ahead = [d for d in tested if d.lip_ahead]
    part = sum(d.both_alone > 0 for d in ahead)
    lip, both, inputs = (sum(getattr(d, key) for d in found) for key in ("lip_fewer", "both_fewer", "inputs"))
    text = (
        f"{norm}: GeoCert-Lip solves fewer programs than LayerCert-Both on {len(ahead)} of {len(tested)} networks"
        f"{f' (on {part} of them it finished fewer inputs)' if part else ''}, and on {lip} of {inputs} questions "
        f"(LayerCert-Both on {both})"
    )
    alone = [sum(getattr(d, key) for d in found) for key in ("both_alone", "lip_alone")]
    if any(alone):
        text += f"; LayerCert-Both alone finished {alone[0]} more, GeoCert-Lip alone {alone[1]}"
    return text + "."


def duel_table(found: list[Duel], name: str, norm: str) -> Table:
    header = (
        "network", "both finished", "GeoCert-Lip", "LayerCert-Both", "Both / Lip", "Lip fewer", "Both fewer",
        "Lip alone", "Both alone", "Both on all", "Lip there",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for d in found:
        numbers = (d.lip_fewer, d.both_fewer, d.lip_alone, d.both_alone, d.both_all)
        least = f"{'>= ' if d.both_alone else ''}{d.lip_least}"
        rows.append(
            (
                Cell(d.net),
                Cell(str(d.shared)),
                Cell(str(d.lip), 0 < d.lip < d.both),
                Cell(str(d.both), 0 < d.both < d.lip),
                Cell("-" if d.ratio is None else f"{d.ratio:.2f}"),
                *(Cell(str(number)) for number in numbers),
                Cell(least),
            )
        )
    return Table(name, f"Programs in {norm}", header, tuple(rows))
