"""The training step, made fast: layers as matrix products and SGD updates during the backward pass.

Shape suffixes besides those of `hpcfl.methods`: R rows of a matrix product, I inputs, O outputs; H, W, C of
an image; U pseudo-labelled samples, A = B + U.
"""
