"""One training step, as fast as the machine lets it: how layers multiply and when parameters move.

Shapes besides those of `hpcfl.methods`: R rows of a product, I inputs, O outputs; H, W, C of an image.
"""
