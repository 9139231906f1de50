"""Answers to a command line that minitf does not have."""
