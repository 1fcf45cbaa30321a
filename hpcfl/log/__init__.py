"""The log of a run: its schema, its writer, its reader."""
