"""Starts the ranks of a plan as processes of this node, without Ray and without a shell."""
