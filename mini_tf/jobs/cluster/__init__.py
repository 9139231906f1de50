"""Plan of a run on many devices, by formula: time, traffic, memory and efficiency. Nothing is trained or measured."""
