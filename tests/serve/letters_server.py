"""``taer serve`` with the tests' own backbone for texts: ``python -m tests.serve.letters_server DIR --port …``."""

from __future__ import annotations

import sys

import taer.serve.run
from taer.cli import main
from tests.serve.backbones import Letters

if __name__ == "__main__":
    taer.serve.run.find = lambda name, head: Letters()
    main(["serve", *sys.argv[1:], "--backbone", "letters"])
