"""``taer label-studio``."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from taer.cli.app import ADDRESS, SERVE, app
from taer.cli.serve import BackboneName, FirstModel, Host, MethodName, Port, Relearn, ServiceFolder


@app.command("label-studio", rich_help_panel=SERVE)
def label_studio(
    folder: ServiceFolder,
    url: Annotated[
        str, typer.Option(help="Where Label Studio is. Images are fetched from there only.")
    ] = "http://localhost:8080",
    key: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_API_KEY",
            help="Access token of a user of Label Studio, for images and for annotations made before.",
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Learn as soon as so many new annotations wait.", min=1)] = 5,
    model: FirstModel = None,
    backbone: BackboneName = None,
    method: MethodName = None,
    relearn: Relearn = False,
    host: Host = "127.0.0.1",
    port: Port = 9090,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TAER_TOKEN",
            help="Token that Label Studio must send. [default: a new random token, printed at the start]",
            rich_help_panel=ADDRESS,
        ),
    ] = None,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name under which Label Studio finds it. Can be given several times.",
            rich_help_panel=ADDRESS,
        ),
    ] = None,
) -> None:
    """Serve a head to Label Studio, whose annotations teach it.

    It predicts the tasks of a project. It is also all that 'taer serve' is: every change is a version that can be
    rolled back.
    """
    if model and relearn:
        raise ValueError("--relearn goes on from the examples in DIR; leave out --model")
    try:
        from taer.serve.label_studio.run import run_label_studio
        from taer.serve.label_studio.tool import Tool
        from taer.serve.run import Access
    except ImportError as error:
        raise ValueError(f"the service needs {error.name}: pip install 'taer[serve]'") from None

    access = Access(host, port, token or secrets.token_urlsafe(16), public_name or [])
    run_label_studio(folder, Tool(url, key), model, backbone, access, method, relearn, every)
