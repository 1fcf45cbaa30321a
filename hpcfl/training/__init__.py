"""Local training of a client: state, batches, augmentation, training step, semi-supervised learning."""
