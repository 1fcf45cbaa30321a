"""The command line. A command imports torch, MPI and other large modules only when it runs."""

from hpcfl.cli.app import main as main
