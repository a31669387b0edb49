"""The programs that launch scripts start: the system that each belongs to, and whether it is a training job."""

from __future__ import annotations

import re

from rankplan.errors import Diagnostic
from rankplan.frozen import frozen
from rankplan.read.text.document import Source
from rankplan.read.text.places import Place, Places

JOB = ""
_SFT, _DPO = "supervised fine-tuning (SFT)", "preference training (DPO)"
_REWARD = "the training of a reward model"
_EVALUATION, _GENERATION, _SERVING = "evaluation", "generation only", "serving of a model"
_DATA = "preparation of data or checkpoints"
_DEEPSPEED = "PPO in the processes of `deepspeed`, without Ray"

_PROGRAMS: tuple[tuple[str, str | None, str], ...] = (
    # verl: the entry points in verl/trainer and verl/experimental
    (r"verl\.(trainer|experimental)\..*sft\w*", "verl", _SFT),
    (r"verl\.\w*trainer\.main_generation\w*", "verl", _GENERATION),
    (r"verl\.\w*trainer\.main_eval\w*", "verl", _EVALUATION),
    (r"verl\.(model_merger|utils)\b.*", "verl", _DATA),
    (r"verl\..*", "verl", JOB),
    # OpenRLHF: openrlhf/cli
    (r"(openrlhf|marti)\.cli\.(multi_agent_)?train_ppo_\w+", "openrlhf", JOB),
    (r"openrlhf\.cli\.train_ppo", "openrlhf", _DEEPSPEED),
    (r"openrlhf\.cli\.train_sft", "openrlhf", _SFT),
    (r"openrlhf\.cli\.train_(dpo|kto)", "openrlhf", _DPO),
    (r"openrlhf\.cli\.train_(rm|prm)", "openrlhf", _REWARD),
    (r"openrlhf\.cli\.train_kd", "openrlhf", "knowledge distillation"),
    (r"openrlhf\.cli\.serve_\w+", "openrlhf", _SERVING),
    (r"openrlhf\.cli\.(batch_inference|interactive_chat)", "openrlhf", _GENERATION),
    (r"openrlhf\.cli\.lora_combiner", "openrlhf", _DATA),
    # SkyRL: skyrl/train/entrypoints, and skyrl_train before
    (r"skyrl(\.|_)train\.(entrypoints\.)?main_sft", "skyrl", _SFT),
    (r"skyrl(\.|_)train\.entrypoints\.main_generate", "skyrl", _GENERATION),
    (r"skyrl(\.|_)train\.entrypoints\.serve\w*", "skyrl", _SERVING),
    (r"skyrl\.tinker\..*", "skyrl", _SERVING),
    (r"skyrl(\.|_)train\.inference_engines\..*", "skyrl", _SERVING),
    (r"skyrl(\.|_)train\..*", "skyrl", JOB),
    # NeMo-RL: examples/run_*.py; its SFT, DPO and reward models train on a cluster of nodes that rankplan places
    (r"(.*\.)?run_(vlm_)?(grpo|ppo|sft|dpo|rm|distillation|xtoken_\w*distillation)(_\w+)?", None, JOB),
    # ROLL: examples/start_*_pipeline.py
    (r"(.*\.)?start_\w+_pipeline", None, JOB),
    # slime, and forks of it
    (r"(.*\.)?train(_async)?", None, JOB),
)
"""A pattern of a module, or of the path of a script with dots; its system (``None``: the keys tell), and its task."""

_WORDS: tuple[tuple[str, str], ...] = (
    ("sft", _SFT),
    ("dpo kto orpo", _DPO),
    ("rm reward_model", _REWARD),
    ("eval evaluate evaluation evaluator", _EVALUATION),
    ("generate generation generator infer inference", _GENERATION),
    ("serve server serving launch_server api", _SERVING),
    ("data dataset datasets preprocess prepare process download convert converter merge merger", _DATA),
)
"""Words in the last name of any other program of Python, and the task that they tell."""
_TRAINING = frozenset({"ppo", "grpo", "dapo", "gspo", "rloo", "reinforce", "rlhf", "rl", "rlvr", "agentic", "train"})

_TRAINERS = {
    "verl": "verl.trainer.main_ppo",
    "openrlhf": "openrlhf.cli.train_ppo_ray",
    "skyrl": "skyrl.train.entrypoints.main_base",
}


@frozen
class Program:
    """A program that a script starts: its name as written, its system if that is known, and its task.

    ``task`` is `JOB` for a training job, a phrase for anything else, and ``None`` if the program is unknown.
    """

    name: str
    place: Place
    system: str | None = None
    task: str | None = None
    otherwise: Diagnostic | None = None
    """The fault of the script if its values have the keys of no system."""

    @property
    def module(self) -> str:
        """The module, or the path of the script with dots: ``verl.trainer.main_ppo``."""
        return _module(self.name)

    @property
    def fault(self) -> Diagnostic:
        """The fault of a script whose program is no training job."""
        if not self.task and self.otherwise is not None:
            return self.otherwise
        other = "" if self.task == _DEEPSPEED else ", not an RL job"
        message = f"`{self.name}` is {self.task}{other}: there is no component to place"
        trainer = _TRAINERS.get(self.system or "")
        reads = f"`{trainer}`" if trainer else "the trainer of a system"
        help = f"pass the script of a job: rankplan reads what a script passes to {reads}"
        return self.place.of(Diagnostic("no-components", message, help))


def started(source: Source | None) -> Program | None:
    """Return the program that a script passes its values to, ``None`` if they come from no script."""
    program: Program | None = source.program if isinstance(source, Places) else None
    return program


def _module(name: str) -> str:
    return re.sub(r"^(\.{0,2}/)+|\.py$", "", name).replace("/", ".")


def program_of(name: str, place: Place) -> Program:
    """Return the program with this module, path or name."""
    dotted = _module(name)
    for pattern, system, task in _PROGRAMS:
        if re.fullmatch(pattern, dotted):
            return Program(name, place, system, task)
    last = dotted.rpartition(".")[2].lower()
    parts = set(re.split(r"[_\W]+", last))
    python = name.endswith(".py") or re.fullmatch(r"\w+(\.\w+)+", name)
    if python and not parts & _TRAINING:
        for words, task in _WORDS:
            if any(word in parts or word == last for word in words.split()):
                return Program(name, place, None, task)
    return Program(name, place)
