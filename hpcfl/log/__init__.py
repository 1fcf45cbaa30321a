"""The log of a run: schema, writer, reader, tables, and the heartbeat file beside it."""
