"""One folder a paper, with everything that it adds; minitf works without them. See README.md."""
