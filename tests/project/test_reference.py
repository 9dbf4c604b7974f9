"""Every public name says what it takes, what it gives and what can go wrong, in the form that the reference renders."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import EnumMeta
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import layercert

API = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
#: What the page of the reference names, besides the names of the package itself.
PAGE = {path for path in re.findall(r"^::: (\S+)$", API, re.MULTILINE) if path != "layercert.errors"}


def sections(doc: str) -> dict[str, dict[str, str]]:
    """The sections of a docstring in Google's style: title -> name -> text (an empty name for plain text)."""
    found: dict[str, dict[str, str]] = {}
    title, name = "", ""
    for line in inspect.cleandoc(doc).splitlines():
        if head := re.fullmatch(r"(Args|Returns|Raises|Attributes):", line):
            title, name = head[1], ""
            found[title] = {}
        elif not line.startswith(" "):
            title = title if not line else ""
        elif title and (entry := re.match(r"    (\w+): (.+)", line)) and title != "Returns":
            name = entry[1]
            found[title][name] = entry[2]
        elif title:
            found[title][name] = found[title].get(name, "") + line
    return found


def public_names() -> dict[str, object]:
    named = {name: getattr(layercert, name) for name in layercert.__all__}
    for path in sorted(PAGE):
        module, _, name = path.rpartition(".")
        named[name] = getattr(import_module(module), name)
    return named


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    for name, value in public_names().items():
        if isinstance(value, FunctionType):
            yield name, value
        elif inspect.isclass(value):
            for member, raw in vars(value).items():
                function = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
                if isinstance(function, FunctionType) and not member.startswith("_"):
                    yield f"{name}.{member}", function


FUNCTIONS = dict(public_functions())
CLASSES = {name: value for name, value in public_names().items() if inspect.isclass(value)}


def test_names_that_a_user_needs_to_ask_are_public() -> None:
    assert {"Problem", "Clause", "robustness", "measure", "verify", "check", "load"} <= set(layercert.__all__)
    homes = {f"{value.__module__}.{name}" for name, value in public_names().items()}  # type: ignore[attr-defined]
    missing = {home for home in homes if home.rpartition(".")[2] in layercert.__all__} - PAGE
    assert missing <= {"layercert.errors.LayerCertError", "layercert.io.load", "layercert.io.from_torch"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_and_what_comes_back_is_documented(name: str) -> None:
    function = FUNCTIONS[name]
    doc = sections(function.__doc__ or "")
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters if p != "self"]
    assert list(doc.get("Args", {})) == parameters
    assert all(len(text) > 3 for text in doc.get("Args", {}).values())
    if signature.return_annotation not in ("None", None):
        assert "".join(doc.get("Returns", {}).values()).strip()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in layercert.__all__])
def test_every_question_says_which_errors_it_raises(name: str) -> None:
    from layercert import errors

    raised = sections(FUNCTIONS[name].__doc__ or "").get("Raises", {})
    assert raised
    for error in raised:
        assert issubclass(getattr(errors, error), layercert.LayerCertError)


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_is_documented(name: str) -> None:
    value = CLASSES[name]
    doc = sections(value.__doc__ or "")
    if isinstance(value, EnumMeta):
        assert list(doc["Attributes"]) == list(value.__members__)
    elif is_dataclass(value):
        assert list(doc["Attributes"]) == [field.name for field in fields(value)]
    for member, raw in vars(value).items():
        if isinstance(raw, property) and not member.startswith("_"):
            assert raw.__doc__, f"{name}.{member}"


def test_a_missing_parameter_is_noticed() -> None:
    assert list(
        sections("Do.\n\n    Args:\n        a: One.\n            More: of it.\n\n    Returns:\n        It.")["Args"]
    ) == ["a"]
    assert sections("Do.\n\n    Returns:\n        x: it.\n")["Returns"] == {"": "    x: it."}
