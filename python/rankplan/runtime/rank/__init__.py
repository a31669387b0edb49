"""The process of a rank: its spec and report, its actor, its ports and its times."""
