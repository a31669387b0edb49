"""RLinf: its placement language, strategies, placement classes and modes."""
