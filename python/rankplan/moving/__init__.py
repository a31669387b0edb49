"""Transitions: what moves from one plan to another, whether it fits on the way, and in which order it is safe."""
