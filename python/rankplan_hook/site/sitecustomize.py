"""Installs the hook in a Python that ``rankplan pin`` started, then runs the ``sitecustomize`` that this file hides."""

import os
import sys

_SITE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib takes longer than all the rest


class _Awaits:
    """Installs the hook when the program imports Ray: a Python that does not pays for nothing more."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]  # as short as it can be
        if name == "ray":
            _install()


def _install() -> None:
    if "rankplan_hook" not in sys.modules:
        # The program's interpreter need not have rankplan: load the package from here.
        package = type(sys)("rankplan_hook")
        package.__path__ = [os.path.dirname(_SITE)]  # noqa: PTH120
        sys.modules["rankplan_hook"] = package
    from rankplan_hook.install import install

    install()


def _run_hidden() -> None:
    here = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if entry != _SITE]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if here is not None:
            sys.modules.setdefault("sitecustomize", here)


if sys.version_info >= (3, 9) and "RANKPLAN_PINS" in os.environ:
    if "ray" in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _Awaits)
_run_hidden()
