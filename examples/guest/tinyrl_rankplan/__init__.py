"""TinyRL for rankplan."""
