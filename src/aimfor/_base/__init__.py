"""What knows nothing of aims: checks, errors, warnings, files, rows."""
