"""The paper's experiments, from one command: batches that can be resumed, claims checked, a page with all of it.

reproduce("table1", Settings(out=Path("reproduction"), time_limit=10, inputs=5))
"""

from __future__ import annotations

from pathlib import Path

from layercert.experiments.page import write_page
from layercert.experiments.runs import BatchWatch, Say, run_experiment
from layercert.experiments.setup import CHOICES, Experiment, NoNetworksError, Settings, chosen

__all__ = ["CHOICES", "Settings", "reproduce"]


def reproduce(what: str, settings: Settings, say: Say = print, watch: BatchWatch | None = None) -> tuple[Path, int]:
    """Run one experiment (or 'all') and write the page of everything in the folder.

    Args:
        what: Name of the experiment, or "all".
        settings: Where, for how long, on which networks.
        say: Called with each line of progress.
        watch: Called for each answer of a batch.

    Returns:
        The path of the page, and how many questions stayed open.

    Raises:
        OptionError: An unknown experiment.
        NoNetworksError: The experiment's networks are not shipped and no folder of them was given.
    """
    experiments, with_example = chosen(what)
    settings.out.mkdir(parents=True, exist_ok=True)
    if with_example:
        (settings.out / "example").touch()
    page, still_open = settings.out, 0
    for part in settings.parts():
        still_open = _run(what, experiments, part, say, watch)
        page = write_page(settings.out)
    return page, still_open


def _run(what: str, experiments: list[Experiment], part: Settings, say: Say, watch: BatchWatch | None) -> int:
    """Every experiment on the first inputs; how many questions stayed open."""
    still_open = 0
    for experiment in experiments:
        try:
            still_open += run_experiment(experiment, part, say, watch)
        except NoNetworksError as error:
            if what != "all":
                raise
            say(f"{experiment.name} is left out: {error}")
    return still_open
