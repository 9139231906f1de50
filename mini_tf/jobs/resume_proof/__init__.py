"""Test of exact resume (`minitf doctor --resume`): runs are killed, continued and compared."""
