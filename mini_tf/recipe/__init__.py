"""What a run shall be: settings, strict YAML, overrides, presets; no torch."""
