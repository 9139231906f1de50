"""The check of `minitf doctor --resume`: tiny runs are killed, resumed and compared with an uninterrupted one."""
