"""The trainers, a folder each: their keys, what these say about memory, and where their components go."""
