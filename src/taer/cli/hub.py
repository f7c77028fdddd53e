"""``taer push`` and ``taer pull``: heads on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import HEADS, app
from taer.cli.models import Model


@app.command(rich_help_panel=HEADS)
def push(
    model: Model,
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="Repository of the hub; made if missing.")
    ],
    test: Annotated[
        Path | None,
        typer.Option(metavar="FEATURES", help="Feature file whose test part measures what the model card says."),
    ] = None,
    license: Annotated[
        str | None, typer.Option(metavar="ID", help="License of the head, as the hub names it, such as apache-2.0.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a private repository, if it is made.")] = False,
    message: Annotated[str | None, typer.Option(help="Message of the commit.")] = None,
) -> None:
    """Upload a head to the Hugging Face hub, with a model card.

    The card is written from the head.
    """
    import numpy as np

    from taer.features import load_features
    from taer.persist import hub
    from taer.persist.save import load

    head, samples = load(model), None
    if test is not None:
        data = load_features(test)
        if data.origin is not None:
            head._check_origin(data.origin)
        samples = data.test_x[:], np.asarray(data.classes)[data.test_y]
    print(
        hub.push(head, repository, test=samples, license=license, private=private or None, message=message),
    )


@app.command(rich_help_panel=HEADS)
def pull(
    address: Annotated[
        str, typer.Argument(metavar="OWNER/NAME[@REVISION]", help="A head on the hub, at a commit, tag or branch.")
    ],
    out: Annotated[Path, typer.Option(help="Where to save the head. An existing file is replaced.")],
) -> None:
    """Download a head from the Hugging Face hub.

    Its commit is recorded in the file.
    """
    from taer.persist import hub
    from taer.persist.pipelines import load

    found = hub.pull(address, out)
    load(out)  # so that a file of another kind is told now
    print(f"{out}: {found}")
