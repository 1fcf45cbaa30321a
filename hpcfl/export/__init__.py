"""`hpcfl export`: runs as CSV files, for TensorBoard or for torch."""
