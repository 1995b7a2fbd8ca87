"""`python -m tidewise.cli` is `tidewise`."""

from tidewise.cli import main

main()
