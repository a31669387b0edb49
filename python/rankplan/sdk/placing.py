"""What several trainers share where they place: free accelerators, engines, pools of components, limits."""

from rankplan._core import MAX_PROCESSES, MAX_RANK, Free, Short
from rankplan.dialects.placing.addresses import check_addresses
from rankplan.dialects.placing.engines import engine_sizes
from rankplan.plans.rules import Pool

__all__ = ["MAX_PROCESSES", "MAX_RANK", "Free", "Pool", "Short", "check_addresses", "engine_sizes"]
