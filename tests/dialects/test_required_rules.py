"""What jobs state about their components, in several steps: `Placer.require`."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan import Inventory, sdk
from rankplan._core import RankSet
from rankplan.errors import Faults, Where
from rankplan.plans.rules import Pool, Rules

RESERVE = Pool("spares", node_ranks=RankSet("3"), protects=("train",))


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (
            {"keep": {"actor": {"tp": "nvlink"}, "critic": {"tp": "nvlink"}}},
            {"keep": {"actor": {"ep": "rack"}}},
            {"keep": {"actor": {"tp": "nvlink", "ep": "rack"}, "critic": {"tp": "nvlink"}}},
        ),
        (
            {"keep": {"actor": {"tp": "nvlink", "world": {"nvlink": 2}}}},
            {"keep": {"actor": {"tp": "rack", "world": {"rack": 1}}}},
            {"keep": {"actor": {"tp": "rack", "world": {"nvlink": 2, "rack": 1}}}},
        ),
        ({"segment": {"actor": 4}}, {"segment": {"rollout": 2}}, {"segment": {"actor": 4, "rollout": 2}}),
        ({"segment": {"actor": {"rack": 4}}}, {"segment": {"actor": 2}}, {"segment": {"actor": 2}}),
        ({"segment": 2}, {"segment": {"actor": 4}}, {"segment": {"all": 2, "actor": 4}}),
        ({"segment": {"actor": 4}}, {"segment": 2}, {"segment": {"actor": 4, "all": 2}}),
        ({"segment": 2}, {"segment": 4}, {"segment": 4}),
        ({"balance": "rack"}, {"balance": {"actor": "nvlink"}}, {"balance": {"all": "rack", "actor": "nvlink"}}),
        ({"cap": {"rack": 4}}, {"cap": {"nvlink": 2}}, {"cap": {"rack": 4, "nvlink": 2}}),
        ({"cap": {"rack": 4}}, {"prefer": {"actor": {"tp": "rack"}}}, None),
        (
            {"pools": (Pool("train", ("actor",)),)},
            {"pools": (RESERVE,)},
            {"pools": (Pool("train", ("actor",)), RESERVE)},
        ),
    ],
)
def test_later_rules_keep_the_earlier_ones(
    first: dict[str, Any], second: dict[str, Any], both: dict[str, Any] | None
) -> None:
    placer = sdk.Placer(Faults(), Inventory.uniform(4, 8))
    places = [{(next(iter(rules)), str(number)): Where(str(number))} for number, rules in enumerate((first, second))]
    placer.require(places=places[0], **first)
    assert placer.rules == Rules(**first)
    placer.require(places=places[1], **second)
    assert placer.rules == Rules(**(both or first | second))
    assert placer.rules.places == places[0] | places[1]
