"""What the server does to the aggregated prototypes, one file per refinement."""
