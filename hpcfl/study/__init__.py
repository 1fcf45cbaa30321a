"""Studies: many runs (cells) described by one file, run, submitted, followed and summarised."""
