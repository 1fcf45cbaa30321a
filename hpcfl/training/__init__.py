"""One client's work: its state, batches, augmentation, the training step, semi-supervised learning."""
