"""Run the command line as ``python -m wideangle``."""

from wideangle.cli import main

if __name__ == "__main__":
    main()
