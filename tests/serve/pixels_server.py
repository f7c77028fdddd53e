"""``taer serve`` with the tests' own backbone: ``python -m tests.serve.pixels_server DIR --port …``."""

from __future__ import annotations

import sys

import taer.serve.run
from taer.cli import main
from tests.serve.backbones import Pixels

if __name__ == "__main__":
    taer.serve.run.find = lambda name, head: Pixels()
    main(["serve", *sys.argv[1:], "--backbone", "pixels"])
