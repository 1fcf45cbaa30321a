"""Who takes part in a run: its data, clients, architectures, and the participants of each round."""
