"""`python -m hpcfl` is `hpcfl`."""

from hpcfl.cli import main

main()
