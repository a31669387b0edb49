"""What a model needs: its sizes, and bounds of the memory of its trainers and engines."""
