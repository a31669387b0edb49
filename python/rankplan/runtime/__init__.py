"""Binding a plan to Ray actors: the only part of rankplan that needs Ray."""

try:
    import ray  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "ray":
        raise
    from rankplan.errors import MissingRayError

    # Ray itself: the name of the extra works only where an index has rankplan.
    raise MissingRayError("this needs Ray, which is not installed; run pip install 'ray>=2.49'") from None
