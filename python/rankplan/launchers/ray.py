"""What scripts share that start Ray on every node, and then a driver."""

from __future__ import annotations

PORT = 6379
TOKEN = (
    "if [[ -z ${RAY_AUTH_MODE-} && -s ${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token} ]]; then",
    '  RAY_AUTH_TOKEN=$(<"${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}")',
    "  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN",
    "fi",
)
"""A head of Ray 2.60 asks for the token that its user has; the other programs of Ray must be told, on every node."""
CHECK = "ray health-check --skip-version-check --address"
"""Succeeds once the head answers at the address that follows."""
