"""``taer serve`` and ``taer backup``."""

from __future__ import annotations

import secrets
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import ADDRESS, SERVE, app

# Options of every command that serves
ServiceFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of examples and versions.")]
FirstModel = Annotated[Path | None, typer.Option(help="Saved head to start a new DIR with.")]
BackboneName = Annotated[str | None, typer.Option(help="Backbone for images or texts; see 'taer backbones'.")]
MethodName = Annotated[
    str | None, typer.Option(help="Name of the head for a new DIR; see 'taer methods'. [default: bayes]")
]
Relearn = Annotated[
    bool,
    typer.Option(
        "--relearn", help="Learn all stored examples again as one version, with another --backbone or --method."
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=ADDRESS)]
Port = Annotated[
    int, typer.Option(help="Port to listen on; 0 for any free port.", min=0, max=65535, rich_help_panel=ADDRESS)
]
_LEARNED = "After learning, and what is unknown"
_SEVERAL = "Many heads, and replicas"


class Promote(StrEnum):
    auto = "auto"
    ask = "ask"
    if_not_worse = "if-not-worse"


@app.command(rich_help_panel=SERVE)
def serve(
    folder: ServiceFolder,
    model: FirstModel = None,
    backbone: BackboneName = None,
    method: MethodName = None,
    relearn: Relearn = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Start with ten animals learned from sketches, and a backbone for drawings."),
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TAER_TOKEN",
            help="Token for requests that change something or read samples; for every request with --public-name or "
            "on a public address. [default: a new random token, printed at the start]",
            rich_help_panel=ADDRESS,
        ),
    ] = None,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name of a proxy in front of the service. Can be given several times.",
            rich_help_panel=ADDRESS,
        ),
    ] = None,
    promote: Annotated[
        Promote,
        typer.Option(
            help="What happens to a learned version: it answers at once, or a person is asked, or only if it is not shown "
            "to be as good.",
            rich_help_panel=_LEARNED,
        ),
    ] = Promote.auto,
    inbox: Annotated[
        int,
        typer.Option(
            metavar="ROWS",
            min=0,
            help="Keep so many inputs that were unknown or uncertain, for a person to name.",
            rich_help_panel=_LEARNED,
        ),
    ] = 0,
    inbox_days: Annotated[
        int, typer.Option(metavar="DAYS", min=1, help="How long to keep each of them.", rich_help_panel=_LEARNED)
    ] = 30,
    errors_at_most: Annotated[
        float | None,
        typer.Option(
            help="Say which answers need no person, so that at most this share of them is wrong, from held-out examples.",
            rich_help_panel=_LEARNED,
        ),
    ] = None,
    multi_label: Annotated[
        bool,
        typer.Option(
            "--multi-label", help="In a new DIR, a sample has any number of labels, such as 'late;refund'."
        ),
    ] = False,
    drawings: Annotated[
        bool, typer.Option("--drawings", help="Offer a sheet to draw on, if the backbone is for images.")
    ] = False,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Only answer, with the versions that another taer serve learns: its folder, or a URL of a copy of it.",
            rich_help_panel=_SEVERAL,
        ),
    ] = None,
    many: Annotated[
        bool,
        typer.Option(
            "--many", help="DIR has many heads, one per folder; serve all of them.", rich_help_panel=_SEVERAL
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="With --many: drop heads from memory above so much, such as 2G.",
            rich_help_panel=_SEVERAL,
        ),
    ] = None,
) -> None:
    """Serve a head over HTTP, with a web page to teach it.

    Every change is a version that can be rolled back.
    """
    if errors_at_most is not None and not 0 < errors_at_most < 1:
        raise ValueError(f"--errors-at-most must be above 0 and below 1, such as 0.02 (got {errors_at_most:g})")
    own = demo or model or relearn
    learns = own or method or inbox or errors_at_most or promote != Promote.auto
    for wrong, why in (
        (
            demo and (model or method or relearn),
            "--demo brings a head of its own; leave out --model, --method and --relearn",
        ),
        (follow and learns, "--follow takes what another service learns; only --backbone and addresses go with it"),
        (
            many and (own or follow),
            "--many serves heads that are in DIR; leave out --demo, --model, --relearn and --follow",
        ),
        (memory and not many, "--memory is for --many"),
        (multi_label and (demo or follow or many), "--multi-label goes with none of --demo, --follow and --many"),
        (model and relearn, "--relearn goes on from the examples in DIR; leave out --model"),
    ):
        if wrong:
            raise ValueError(why)
    try:
        from taer.serve.inbox import Bounds
        from taer.serve.run import Access, run
    except ImportError as error:
        raise ValueError(f"the service needs {error.name}: pip install 'taer[serve]'") from None

    access = Access(host, port, token or secrets.token_urlsafe(16), public_name or [])
    bounds = Bounds(inbox, inbox_days) if inbox else None
    if many:
        from taer.serve.many.run import run_many, size_of

        most = size_of(memory) if memory else None
        run_many(folder, backbone, access, method, most, drawings, promote.value, bounds, errors_at_most)
        return
    run(
        folder,
        model,
        backbone,
        demo,
        access,
        method,
        relearn,
        drawings,
        promote.value,
        bounds,
        follow,
        errors_at_most,
        multi_label,
    )


@app.command(rich_help_panel=SERVE)
def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a service, or of many heads, which may be running.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.tar", help="File to write; it must not exist.")],
) -> None:
    """Back up a service, which may be running, to a tar file."""
    from taer.serve.backup import back_up

    made = back_up(folder, out)
    for missing in made.missing:
        print(f"taer: {missing} is missing; it is not in the backup", file=sys.stderr)
    databases = "the database" if made.databases == 1 else f"{made.databases} databases"
    print(f"{out}: {databases} and {made.versions} versions; to restore: mkdir NEW && tar -xf {out} -C NEW")
