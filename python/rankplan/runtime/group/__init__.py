"""The ranks of a component as a group: launch, calls, verification, restart."""
