"""What other packages add by their entry points: dialects, launchers and commands."""
