"""The lowest layer, which knows nothing of aims: checks, errors, warnings, files and rows."""
