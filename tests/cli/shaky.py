"""A process in which storage fails: it runs a command for each line of its input, a JSON list of arguments.

The answer to each is a line of JSON: the exit code and what was printed to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

import numpy as np

import taer.cli
from taer.features.backbones import NAMED, Backbone
from taer.features.backbones.named import Named


class Letters:
    """A text backbone that counts letters."""

    engine, batch_size, in_flight = "letters", 2, 1

    def __call__(self, items):
        return np.array([[item.count(letter) for letter in "abcdefgh"] for item in items], np.float32)


def answer(arguments):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            taer.cli.main(arguments)
        except SystemExit as stop:
            return {"code": stop.code, "told": told.getvalue()}
        except BaseException as error:  # a traceback, which no user should see
            return {"code": None, "told": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    letters = Backbone("letters", "text", "counted", "here sha256:1e77", str, lambda half=False: Letters())
    NAMED["letters"] = Named("letters", "text", 0, 8, "none", "here", lambda: True, lambda weights: letters)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
