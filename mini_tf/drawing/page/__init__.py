"""A page: one HTML file that shows maps, tables and curves, offline, without any code but its own."""
