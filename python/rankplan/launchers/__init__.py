"""Plans as the files of launchers, and these files as plans."""
