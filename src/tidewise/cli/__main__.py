"""`python -m tidewise.cli` is `tidewise`."""

from tidewise.cli.app import main

main()
