"""Several processes that work together, on one or many machines: launching, their group, sums of gradients, sharding.

Rendezvous and collectives are torch.distributed's; only the order of a sum is ours. A single process uses none of it.
The package is above blocks and optimizers, which sharding divides, and below data, whose processing the group divides.
"""
