"""What `minitf evaluate` measures beside the metrics of a data set, and its plots."""
