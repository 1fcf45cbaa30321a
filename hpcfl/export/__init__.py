"""`hpcfl export`: runs as CSV files or for TensorBoard."""
