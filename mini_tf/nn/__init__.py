"""PyTorch modules from which every model is built.

Axes of tensors. Signatures carry them as jaxtyping shapes, which the tests check at every call; a local name that ends
in `_` and letters has these axes in this order.

    B  batch (rows)                    H  query heads        F  d_ff
    L  queries (target length)         G  key-value heads    V  vocabulary, or d_v after H
    M  keys (length of the memory)     K  d_k                D  d_model
    T  targets
"""
