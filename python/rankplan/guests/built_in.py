"""The table of the dialects that rankplan has itself. Every other dialect comes through the door of guests."""

from __future__ import annotations

DIALECTS = {
    "nemo_rl": "rankplan.trainers.nemo_rl.dialect:DIALECT",
    "areal": "rankplan.trainers.areal.dialect:DIALECT",
    "skyrl": "rankplan.trainers.skyrl.dialect:DIALECT",
    "rlinf": "rankplan.rlinf.dialect:DIALECT",
    "verl": "rankplan.trainers.verl.dialect:DIALECT",
    "easyr1": "rankplan.trainers.forks.easyr1:DIALECT",
    "rl_factory": "rankplan.trainers.forks.rl_factory:DIALECT",
    "rllm": "rankplan.trainers.forks.rllm:DIALECT",
    "vagen": "rankplan.trainers.forks.vagen:DIALECT",
    "slime": "rankplan.trainers.slime.dialect:DIALECT",
    "miles": "rankplan.trainers.forks.miles:DIALECT",
    "vime": "rankplan.trainers.forks.vime:DIALECT",
    "roll": "rankplan.trainers.roll.dialect:DIALECT",
    "openrlhf": "rankplan.trainers.openrlhf.dialect:DIALECT",
    "marti": "rankplan.trainers.forks.marti:DIALECT",
    "prime_rl": "rankplan.trainers.prime_rl.dialect:DIALECT",
    "trl": "rankplan.trainers.trl.dialect:DIALECT",
    "ms_swift": "rankplan.trainers.ms_swift.dialect:DIALECT",
    "open_instruct": "rankplan.trainers.open_instruct.dialect:DIALECT",
}
"""The value of each dialect, as help texts list them."""

ASKED = (
    *("nemo_rl", "areal", "skyrl", "verl", "open_instruct", "openrlhf", "slime", "roll", "prime_rl"),
    *("ms_swift", "trl"),
)
"""The dialects whose keys recognise a config, in the order in which they are asked: older flags of OpenRLHF are also
flags of slime, and open-instruct has some of them; ms-swift has keys of TRL."""

FORKS: dict[str, tuple[str, ...]] = {
    "verl": ("easyr1", "rl_factory", "rllm", "vagen"),
    "slime": ("miles", "vime"),
    "openrlhf": ("marti",),
}
"""The forks of these dialects, which are asked in this order once their parent has recognised a config."""

OWN = "rlinf"
"""The dialect of a config that no other one recognises: its `cluster` section is rankplan's own language, too."""
