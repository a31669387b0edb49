"""TRL: a trainer that accelerate starts, and a server of vLLM beside it or inside its processes."""
