"""Ray itself: its private parts, connections, waiting and failures."""
