"""`minitf runs`: list, show, compare, report, rm. Only the attention heads of a report need torch."""
