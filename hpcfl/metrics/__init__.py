"""What a metric is, and how values that ranks measure for their clients become rows of the log."""
