"""Forks of other trainers: guests that say what they have otherwise than their parents."""
