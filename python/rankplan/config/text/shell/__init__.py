"""Reads shell scripts without running them: what a script itself decides is known, and everything else has a cause."""
