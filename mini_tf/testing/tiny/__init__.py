"""What contract tests try kinds with."""
