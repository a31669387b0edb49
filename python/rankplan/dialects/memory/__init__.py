"""What each dialect says about the memory of its components: one table a dialect, and one reader of all."""
