"""How good is a tool? Its radii beside the exact ones: ratios, shares, a ranking, and claims that are disproved."""

from __future__ import annotations

import csv
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.audit.answers import Answers
from layercert.audit.case import Case, Domain, Tool, Truth, Wanted, cases, check_names
from layercert.bench.table import Radius
from layercert.errors import InputError, LayerCertError
from layercert.network import Network
from layercert.problem import Problem

ATTACK, VERIFIER = "attack", "verifier"
#: A point that misses the other class by rounding is moved on by these parts of its distance, which then counts.
STRETCH = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
#: "Exact" for an attack: within so much of the true radius.
CLOSE = 0.01
#: A verifier's claim is disproved when a witness is nearer by more than this part: float32 tools get that much.
SLIP = 1e-6


@dataclass(frozen=True)
class Score:
    """One tool's radius for one question.

    Attributes:
        tool: Its name.
        kind: attack or verifier.
        row: The truth.
        radius: The distance of the point it found (inf for none), or the radius that it certifies.
        seconds: Its share of the time for all inputs of the case, by the processor.
    """

    tool: str
    kind: str
    row: Radius
    radius: float
    seconds: float

    @property
    def ratio(self) -> float:
        """To the exact radius: >= 1 for an attack, <= 1 for a verifier that is right."""
        return self.radius / self.row.upper

    @property
    def wrong(self) -> bool:
        """A certified radius within which there is a point of another class, or a point nearer than what is proved."""
        if self.kind == VERIFIER:
            return self.radius > self.row.upper * (1 + SLIP)
        return self.radius < self.row.lower * (1 - SLIP)


def audit(
    source: Truth,
    tools: Sequence[Tool],
    wanted: Wanted | None = None,
    say: Callable[[str], None] = lambda text: None,
    answers: Answers | None = None,
) -> list[Score]:
    """Ask every tool every question that it takes.

    Args:
        source: Where exact radii come from.
        tools: Attacks and verifiers.
        wanted: Which questions; all of them if left out.
        say: Called with each line of progress.
        answers: Where answers are kept as they come; what is there is not asked again.

    Returns:
        A score for each question and tool. A tool that fails on a case has no scores for it, and `say` hears why.

    Raises:
        OptionError: A network, norm or setting that the truth does not have.
    """
    scores: list[Score] = []
    for case, rows in cases(source, wanted or Wanted()):
        for tool in tools:
            if not tool.takes(rows[0]):
                continue
            answer = None if answers is None else answers.get(tool, rows)
            if answer is None:
                try:
                    answer = _ask(tool, case)
                except LayerCertError:
                    raise
                except Exception as error:  # other people's code: whatever it raises belongs into the record
                    say(f"{tool.name} failed on {rows[0].network}, {rows[0].norm}: {type(error).__name__}: {error}")
                    continue
                if answers is not None:
                    answers.put(tool, rows, *answer)
            radii, seconds = answer
            scores += [Score(tool.name, tool.kind, row, r, seconds) for row, r in zip(rows, radii, strict=True)]
        say(f"{rows[0].network} {rows[0].norm} {rows[0].setting}: {len(rows)} inputs")
    return scores


def _ask(tool: Tool, case: Case) -> tuple[list[float], float]:
    """Radii, and the seconds per question."""
    if tool.loads:
        _warm_up(tool, case.norm, case.domain)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other packages warn of is not about the audit
        answer = np.asarray(tool.run(case), dtype=np.float64)
    radii = measured(case, answer) if tool.kind == ATTACK else certified(case, answer)
    return radii, (time.process_time() - started) / len(case.X)


@cache
def _warm_up(tool: Tool, norm: str, domain: Domain) -> None:
    """Call a tool on a small network, once per process: packages are loaded, kernels compiled."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4, 3)), rng.normal(size=(2, 4))]
    network = Network.from_arrays(weights, [np.zeros(4), np.zeros(2)])
    x = np.full((1, 3), 0.5)
    with suppress(Exception), warnings.catch_warnings():  # whoever fails here may well answer what it is asked
        warnings.simplefilter("ignore")
        tool.run(Case(network, x, network(x).argmax(axis=1), norm, domain))


def measured(case: Case, points: Matrix) -> list[float]:
    """Distances of an attack's points, judged by us: inf for one that has the same class.

    Args:
        case: What was asked.
        points: One per input; NaN where the attack gave up.

    Returns:
        A distance per input. Points outside the domain are moved into it first.
    """
    if points.shape != case.X.shape:
        raise ValueError(f"an attack returns one point per input: expected shape {case.X.shape}, got {points.shape}")
    return [_distance(case.problem(i), v) for i, v in enumerate(points)]


def _distance(problem: Problem, v: Vector) -> float:
    if not np.isfinite(v).all():
        return math.inf
    v = problem.into_domain(v)
    for stretch in STRETCH:
        u = problem.into_domain(problem.x + (1 + stretch) * (v - problem.x))
        if problem.is_unsafe(u):
            return float(problem.distance(u))
    return math.inf


def certified(case: Case, radii: Vector) -> list[float]:
    """A verifier's radii; what is not a number counts as 0."""
    if radii.shape != (len(case.X),):
        raise ValueError(f"a verifier returns one radius per input: expected {len(case.X)}, got shape {radii.shape}")
    return [max(0.0, float(r)) if math.isfinite(r) else 0.0 for r in radii]


def read_scores(path: Path, source: Truth, wanted: Wanted) -> list[Score]:
    """Radii that a user has from elsewhere.

    Args:
        path: A CSV file with the columns tool, kind (attack or verifier), network, norm, setting (box or free), input
            and radius.
        source: The truth.
        wanted: Which questions.

    Returns:
        A score for each line whose question the truth has an exact radius for.

    Raises:
        InputError: A column is missing, or a line cannot be read.
    """
    check_names(source, wanted)
    known = {(r.network, r.norm, r.setting, str(r.input)): r for r in source.rows if wanted(r)}
    scores: list[Score] = []
    columns = ("tool", "kind", "network", "norm", "setting", "input", "radius")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path}' cannot be read: {error}; expected a CSV file of radii") from None
    for number, line in enumerate(lines, 2):
        missing = [column for column in columns if not line.get(column)]
        if missing:
            raise InputError(
                f"line {number} of '{path}' has no {missing[0]}; expected the columns {', '.join(columns)}"
            )
        if line["kind"] not in (ATTACK, VERIFIER):
            raise InputError(f"line {number} of '{path}': kind is {line['kind']!r}; expected {ATTACK} or {VERIFIER}")
        try:
            radius = float(line["radius"])
        except ValueError:
            radius = math.nan
        if not radius >= 0:
            raise InputError(f"line {number} of '{path}': the radius {line['radius']!r} is no number >= 0")
        row = known.get((line["network"], line["norm"], line["setting"], line["input"]))
        if row is not None:
            scores.append(Score(line["tool"], line["kind"], row, radius, math.nan))
    if not scores:
        raise InputError(
            f"no line of '{path}' is about a question with an exact radius; compare its names with the table"
        )
    return scores


@dataclass(frozen=True)
class Standing:
    """A tool in the ranking of one norm and setting.

    Attributes:
        tool: Its name.
        kind: attack or verifier.
        questions: How many it answered.
        close: Attacks: share within 1 % of the exact radius. Verifiers: share of radii that are at least half of it.
        median: Of the ratio to the exact radius; an attack that found nothing counts as inf.
        worst: The ratio that 90 % of the questions do not exceed (attacks) or reach (verifiers).
        failed: Attacks: nothing found. Verifiers: radius 0.
        wrong: Claims that are disproved.
        seconds: Mean per question; NaN where it is not known.
    """

    tool: str
    kind: str
    questions: int
    close: float
    median: float
    worst: float
    failed: int
    wrong: int
    seconds: float


def ranking(scores: Iterable[Score], kind: str) -> list[Standing]:
    """The tools of one kind, the best first: by the median of the ratio, then by the share that is close.

    Args:
        scores: Those of one norm and setting.
        kind: attack or verifier.

    Returns:
        A line per tool.
    """
    by_tool: dict[str, list[Score]] = {}
    for score in scores:
        if score.kind == kind:
            by_tool.setdefault(score.tool, []).append(score)
    lines = [_standing(name, kind, members) for name, members in by_tool.items()]
    sign = 1 if kind == ATTACK else -1
    return sorted(lines, key=lambda s: (sign * s.median, -s.close))


def _standing(name: str, kind: str, scores: list[Score]) -> Standing:
    ratios = sorted(score.ratio for score in scores)
    if kind == ATTACK:
        close = sum(r <= 1 + CLOSE for r in ratios) / len(ratios)
        worst = ratios[min(len(ratios) - 1, math.ceil(0.9 * len(ratios)) - 1)]
        failed = sum(math.isinf(r) for r in ratios)
    else:
        close = sum(r >= 0.5 for r in ratios) / len(ratios)
        worst = ratios[max(0, len(ratios) - math.ceil(0.9 * len(ratios)))]
        failed = sum(r == 0.0 for r in ratios)
    seconds = float(np.mean([score.seconds for score in scores]))
    wrong = sum(score.wrong for score in scores)
    return Standing(name, kind, len(ratios), close, median(ratios), worst, failed, wrong, seconds)
