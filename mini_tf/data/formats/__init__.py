"""Read data files into documents and table rows."""
