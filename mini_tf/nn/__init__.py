"""Tensors: the parts that every model is made of.

Axes, by the letters of the 2017 paper. Signatures carry them as jaxtyping shapes, which tests check at every call; a local
name that ends in `_` and letters has these axes in this order.

    B  batch (rows)            H  heads                F  d_ff
    L  queries (own tokens)    G  key-value heads      V  vocabulary, or d_v after H
    M  memory (what is read)   K  d_k                  R  random features
    T  targets                 D  d_model              N  latents
"""
