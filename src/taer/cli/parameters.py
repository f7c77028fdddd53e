"""Parameters as command-line options: ``--set NAME=VALUE``, and error messages that name the option."""

from __future__ import annotations

import re
from itertools import product
from typing import Any


def sweep(names: list[str], common: dict[str, Any], settings: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Each head with its parameters, once for each combination of the values that are separated by commas."""
    every = list(product(*map(_each, settings)))
    combinations = [parameters(names, common, list(one)) for one in every]
    chosen: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        for params in combinations:
            if (name, params[name]) not in chosen:  # a head has some of the parameters, or none
                chosen.append((name, params[name]))
    return chosen


def _each(setting: str) -> list[str]:
    left, equals, right = setting.partition("=")
    values = right.split(",")
    if len(values) > 1 and not all(values):
        raise ValueError(f"--set {setting}: expected a value on each side of a comma")
    return [f"{left}{equals}{value}" for value in values]


def parameters(names: list[str], common: dict[str, Any], settings: list[str]) -> dict[str, dict[str, Any]]:
    """The parameters of each head from the command line, validated."""
    from taer.heads import find_head, make_head
    from taer.heads.params import check_params

    known = {name: find_head(name)().get_params() for name in names}
    given = {key: value for key, value in common.items() if value is not None}
    params = {name: {key: value for key, value in given.items() if key in known[name]} for name in names}
    for setting in settings:
        left, equals, right = setting.partition("=")
        method, dot, key = left.rpartition(".")
        targets = [method] if dot else [name for name in names if key in known[name]]
        if not equals or not key:
            raise ValueError(f"--set {setting}: expected NAME=VALUE or METHOD.NAME=VALUE")
        if dot and method not in names:
            raise ValueError(f"--set {setting}: {method!r} is not among the methods of this run")
        if not targets or any(key not in known[name] for name in targets):
            raise ValueError(
                f"--set {setting}: {method or 'no method of this run'} has"
                f"{' no' if method else ''} parameter {key!r}"
            )
        for name in targets:
            params[name][key] = _value(right)
    for name in names:
        check_params(make_head(name, **params[name]))
    return params


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return None if text == "None" else {"true": True, "false": False}.get(text.lower(), text)


def with_options(message: str) -> str:
    """An error message of ``taer.extract`` or ``taer.Extractor`` with options in place of parameters."""
    parameters = (
        r"\b(root|weights|test_fraction|text_column|label_column|split_column|skip_bad|append|half)=(\w+(?:\.\d+)?)"
    )
    return re.sub(
        parameters,
        lambda match: f"--{match[1].replace('_', '-')}" + ("" if match[2] == "True" else f" {match[2]}"),
        message,
    )
