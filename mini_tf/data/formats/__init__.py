"""From files to documents and rows of tables."""
