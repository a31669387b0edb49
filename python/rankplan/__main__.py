"""``python -m rankplan``."""

from rankplan.cli import main

main()
