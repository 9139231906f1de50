"""Several processes that train one model together, on one or many machines: their group, and sums of gradients.

Launch, rendezvous and collectives are torch.distributed's; only the order of a sum is ours. A single process uses
none of it.
"""
