"""Binds the placement groups of a Ray program to the nodes of a plan: the part of ``rankplan pin`` in its processes.

It uses only the standard library and nothing of rankplan, and runs on every Python that Ray supports (3.9 or later): it
is loaded into the program's own interpreter.
"""
