"""The live view of a run from anywhere that sees its file system."""
