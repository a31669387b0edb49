"""SkyRL as a dialect."""

from __future__ import annotations

from rankplan.sdk import Dialect, Program, Tried
from rankplan.trainers.skyrl.keys import KEYS

DIALECT = Dialect(
    name="skyrl",
    system="SkyRL",
    keys=KEYS,
    job="rankplan.trainers.skyrl.job:SkyrlJob",
    resized="rankplan.dialects.placing.resizing:as_larger_groups",
    programs=(  # skyrl/train/entrypoints, and skyrl_train before
        Program(r"skyrl(\.|_)train\.(entrypoints\.)?main_sft", "supervised fine-tuning (SFT)"),
        Program(r"skyrl(\.|_)train\.entrypoints\.main_generate", "generation only"),
        Program(r"skyrl(\.|_)train\.entrypoints\.serve\w*", "serving of a model"),
        Program(r"skyrl\.tinker\..*", "serving of a model"),
        Program(r"skyrl(\.|_)train\.inference_engines\..*", "serving of a model"),
        Program(r"skyrl(\.|_)train\..*"),
    ),
    trainer="skyrl.train.entrypoints.main_base",
    tried=Tried("0.3.0", "skyrl/__init__.py"),
)
