"""For tests that use rankplan: Hypothesis strategies for its inputs, and a check of plans.

Requires Hypothesis: ``pip install hypothesis``::

    @given(st.data())
    def test_my_launcher(data):
        inventory = data.draw(inventories())
        section = data.draw(cluster_sections(inventory))
        plan = ComponentPlacement({"cluster": section}, inventory).plan()
        check_plan(plan)
        ...

Examples shrink towards few nodes, components and processes. No strategy filters.
"""

try:
    import hypothesis  # noqa: F401
except ImportError as error:
    raise ImportError("rankplan.testing requires Hypothesis; run pip install hypothesis") from error

from rankplan.testing.checks import check_plan
from rankplan.testing.faulty import PLACEMENT_CODES, InvalidPlacement, invalid_placements
from rankplan.testing.strategies import cluster_sections, inventories, placements, rank_sets

__all__ = [
    "PLACEMENT_CODES",
    "InvalidPlacement",
    "check_plan",
    "cluster_sections",
    "invalid_placements",
    "inventories",
    "placements",
    "rank_sets",
]
