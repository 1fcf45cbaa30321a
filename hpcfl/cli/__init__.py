"""The commands, thin: torch and MPI are imported only by the command that needs them."""

from hpcfl.cli.app import main as main
