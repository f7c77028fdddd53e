"""The tables of ``taer methods``, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taer.heads import Head

_WIDTH = 100
_NAME = 18
_TITLES = {
    "exemplars": "exemplars",
    "old scores move": "old scores move",
    "forgets a class exactly": "forgets",
    "unlearns samples, merges": "unlearns, merges",
    "few examples": "few examples",
    "ONNX": "ONNX",
}


def print_heads(title: str, heads: Mapping[str, type[Head]], *, long: bool) -> None:
    """A table of heads: properties and a sentence; with ``long``, also parameters."""
    if not heads:
        return
    print(fill(f"{title}:", _WIDTH) + "\n")
    print(_line("", _TITLES))
    for name, head in heads.items():
        facts = head.card.facts()
        print(_line(name, {key: _brief(value) for key, value in facts.items()}))
        terms = [f"{key}: {value}" for key, value in facts.items() if " " in value]
        parameters = ", ".join(f"{item.name}={item.default!r}" for item in fields(head))
        what = (head.__doc__ or "").strip().splitlines()[0].replace("``", "")
        for text in (what, *((*terms, parameters) if long else ())):
            print(fill(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4, break_on_hyphens=False))
    print()


def _line(name: str, cells: Mapping[str, str]) -> str:
    shown = (f"{cells[key]:<{max(len(title), len('memory_size'))}}" for key, title in _TITLES.items())
    return f"  {name:<{_NAME}}{' '.join(shown)}".rstrip()


def _brief(value: str) -> str:
    """A fact in a word; its terms are in the long table."""
    return "in part" if " " in value else value.strip("`")


def print_parameters(heads: Iterable[type[Head]]) -> None:
    """What the parameters of heads mean. One name may mean something else in another head."""
    helps: dict[str, dict[str, list[str]]] = {}
    for head in heads:
        for item in fields(head):
            helps.setdefault(item.name, {}).setdefault(item.metadata["help"], []).append(head.name)
    print("What the parameters mean:\n")
    for parameter, texts in sorted(helps.items()):
        for text, names in texts.items():
            of = f" ({', '.join(names)})" if len(texts) > 1 else ""
            first = f"  {parameter:<{_NAME}}"
            print(fill(text + of, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first)))
