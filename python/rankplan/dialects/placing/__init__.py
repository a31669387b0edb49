"""What a dialect wants in numbers, taken from an inventory by the core."""
