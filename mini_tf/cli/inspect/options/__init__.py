"""Options and outputs that several views of `minitf inspect` share."""
