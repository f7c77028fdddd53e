"""The application that the commands of the other modules are registered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from taer import __version__
from taer.cli.own import import_own

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Panels of options that several commands have
READING, ADDRESS, ENGINE = "Tables, images and backbone", "Address and tokens", "Where it runs"
# Panels of `taer --help`, in this order, and the commands that come first in theirs.
PANELS = HEADS, LOOP, DATA, COMPARE, SERVE = "Heads", "What is new, what to trust", "Data", "Compare", "Serve"
FIRST = (
    *("fit", "learn", "predict", "describe", "diagnose", "relabel", "unlearn", "forget", "rename", "merge"),
    *("run", "methods"),
)


class _Panels(TyperGroup):
    """Lists the commands of each panel under its name, as plain text."""

    def panels(self) -> dict[str, list[str]]:
        """The names of the commands in each panel."""
        panels: dict[str, list[str]] = {panel: [] for panel in PANELS}
        for name, command in sorted(self.commands.items(), key=_place):
            panels.setdefault(getattr(command, "rich_help_panel", None) or "More", []).append(name)
        return panels

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for panel, names in self.panels().items():
            room = formatter.width - 6 - width
            members = [(name.ljust(width), self.commands[name].get_short_help_str(room)) for name in names]
            with formatter.section(panel):
                formatter.write_dl(members)


class _Command(TyperCommand):
    """Lists the options of each panel under its name, after those of the command itself."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.metavar is None:
                parameter.metavar = str(parameter.name).upper()

    def panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and help of the parameters in each panel."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        return {panel: members for panel, members in panels.items() if members}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for panel, members in self.panels(ctx).items():
            with formatter.section(panel):
                formatter.write_dl(members)


class _App(typer.Typer):
    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        return super().command(name, **{"cls": _Command} | settings)


def _place(named: tuple[str, Any]) -> int:
    return FIRST.index(named[0]) if named[0] in FIRST else len(FIRST)


app = _App(
    cls=_Panels,
    help="Classifiers that keep learning new classes, on top of any frozen pretrained model.\n\n"
    "Start with 'taer run', which compares heads on a data set that comes along, or with "
    "'taer fit FILE --out head.safetensors', which teaches a head your own classes. 'taer COMMAND --help' shows the "
    "options of a command.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    import_: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module that defines heads of your own, before the command runs. The current folder is "
            "searched, too. May be repeated.",
        ),
    ] = None,
) -> None:
    for module in import_ or []:
        import_own(module)
    if version:
        print(f"taer {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
