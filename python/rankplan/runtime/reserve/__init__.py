"""Reservations of accelerators, and notices to other jobs."""
