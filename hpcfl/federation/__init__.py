"""The plan of a run (data, clients, architectures) and the participants of each round."""
