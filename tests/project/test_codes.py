"""The list of codes is closed."""

from __future__ import annotations

import rankplan
from support.rejected import assignment, config, language, parallel, tune


def test_the_list_of_codes_is_closed() -> None:
    """Every code is raised by a row of a table, and no row raises another one."""
    raised = {found.split()[1].rstrip(":") for _, found, _ in config.REFUSED} | {code for _, code in config.INVENTORIES}
    raised |= {code for _, _, faults in language.REFUSED for code, _ in faults}
    raised |= {fault.split(":")[0] for _, faults, _ in assignment.WORDS for fault in faults}
    raised |= {code for _, code in assignment.REFUSED_BY_HAND}
    raised |= {"unknown-component", "invalid-plan", "plan-mismatch", "share-overflow"}  # config/test_config.py, plans/
    raised |= {"order-not-kept", "never-reserved"}  # plans/test_trainer_order.py, plans/test_reserving.py
    raised |= {"mode-unclear", "auto-order", "auto-dp"}  # rlinf/rejected.yaml
    raised |= {"no-weight-sender", "parallel-conflict", *parallel.CODES, *tune.CODES}
    raised |= {"no-components"}  # config/test_jobs_of_scripts.py
    raised |= {"excluded-resource", "unknown-level"}  # nodes/test_exclusion.py, nodes/test_topology.py
    raised |= {"bad-node-rank"}  # nodes/test_node_rank.py
    raised |= {"visibility-order", "binding-unmet"}  # plans/test_visibility.py, plans/test_binding.py
    raised |= {"segment-incomplete", "domain-too-small", "no-spare"}  # arranging/
    raised |= {"unknown-model", "model-keys"}  # memory/test_model.py
    raised |= {"memory-exceeded", "engine-share", "host-memory"}  # plans/test_plan_memory.py
    raised |= {"hook-missing", "not-pinned", "node-lost", "wrong-place"}  # hook/, runtime/test_pin.py
    raised |= {"guest-failed"}  # guests/
    raised |= {"other-job", "transition-stuck"}  # moving/
    raised |= {"job-conflict", "exists"}  # jobs/
    raised |= {code for code in rankplan.error_codes() if code.startswith("emit-")}  # cli/test_explain.py, launchers/
    assert raised == set(rankplan.error_codes())
    assert len(rankplan.error_codes()) == len(raised)
