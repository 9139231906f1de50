"""A rehearsal of the worst on this machine, for `minitf doctor --resume`: runs that are killed, continued and compared."""
