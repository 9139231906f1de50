"""How a model learns: the plan, the loop, the optimizer, the schedule, the machine."""
