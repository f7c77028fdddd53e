"""``python -m taer`` is the command line."""

from taer.cli import main

if __name__ == "__main__":
    main()
