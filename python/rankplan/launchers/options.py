"""What a file says besides the plan, and what is found wrong while it is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, fields, replace
from itertools import chain
from typing import Any

from rankplan.errors import Diagnostic, PlacementError
from rankplan.frozen import frozen
from rankplan.kinds import PLAN
from rankplan.plans.plan_job import BASE, TO
from rankplan.words import shown, wrong_type

JOB, CLUSTER = "job", "cluster"
KINDS = (JOB, CLUSTER)
"""A RayJob, which runs its entrypoint and ends, or a RayCluster, which stays."""

DEFAULT = "*"
"""The key of the command for components without their own; ``{}`` in it stands for the component's name."""


@frozen
class Options:
    """What a file says besides the plan; what is not given is left out of it.

    ``name`` is that of the job; unless it is ``named``, a base may have another. ``entrypoint`` is the driver of a job
    on Ray; ``commands`` are by component, and that of `DEFAULT` is for all others. ``base`` is the path of the user's
    own file. ``queue`` is Kueue's local queue; ``levels`` are node labels by level, ``resource_keys`` the resources
    that count accelerators, by type. ``pin``: only the named hosts. ``kind`` is one of `KINDS`. ``slurm_release`` and
    ``segment_level`` are Slurm's. Component i has its rendezvous at ``port`` + i. ``own`` are options that only one
    launcher has.
    """

    name: str = "train"
    named: bool = False
    entrypoint: str | None = None
    commands: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    image: str | None = None
    cpus: str | None = None
    memory: str | None = None
    namespace: str | None = None
    queue: str | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    resource_keys: Mapping[str, str] = field(default_factory=dict)
    pin: bool = False
    kind: str = JOB
    slurm_release: str | None = None
    segment_level: str | None = None
    port: int = 29500
    own: Mapping[str, Any] = field(default_factory=dict)

    def command(self, component: str) -> str | None:
        """Return the command of a component, ``None`` if there is none."""
        if component in self.commands:
            return self.commands[component]
        default = self.commands.get(DEFAULT)
        return None if default is None else default.replace("{}", component)


@frozen
class Form:
    """How a user states an option: in Python with a value of ``types``, else ``instead`` says what to pass.

    On the command line, its flag is ``flag``, with a text shown as ``metavar``. ``repeatable``: each flag adds a pair.
    ``choices`` are all allowed texts, ``bounds`` those of a number. ``shared``: every launcher takes it; others are
    named by the launchers that do.
    """

    help: str
    types: Any = str
    instead: str = "a text"
    flag: str | None = None
    metavar: str | None = None
    repeatable: bool = False
    choices: tuple[str, ...] = ()
    bounds: tuple[int, int] | None = None
    shared: bool = True

    def accepts(self, value: object) -> bool:
        """Return whether a value is of a right type; a truth value is no number."""
        if isinstance(value, bool) and self.types is not bool:
            return False
        texts = chain(value, value.values()) if isinstance(value, Mapping) else ()
        return isinstance(value, self.types) and all(isinstance(text, str) for text in texts)


def _form(help: str, **form: Any) -> dict[str, Form]:
    return {"form": Form(help, **form)}


@frozen(kw_only=True)
class EmitOptions:
    """What a user states for `emit`; ``None`` is not stated. The flags of ``rankplan emit`` are its fields.

    ``command`` is the command of each component, by name, or one for all in which ``{}`` is the name. ``own`` are the
    options that only this launcher has, by name. `Options` has the meaning of the others. Raises ``TypeError`` for a
    value of a wrong type.
    """

    name: str | None = field(
        default=None, metadata=_form("Name of the job and of everything in it (default: that of the base, or train).")
    )
    command: str | Mapping[str, str] | None = field(
        default=None,
        metadata=_form(
            "Command of a component, without Ray; repeatable. Without COMPONENT=, the command of all others, where {} "
            "stands for the component.",
            types=str | Mapping,
            instead="a text, or one for each component",
            metavar="[COMPONENT=]COMMAND",
            repeatable=True,
        ),
    )
    entrypoint: str | None = field(
        default=None, metadata=_form("Command of one driver on Ray, which launches the plan.", metavar="COMMAND")
    )
    base: str | os.PathLike[str] | None = field(
        default=None,
        metadata=_form(
            "Your own file of this kind, to merge into.", types=str | os.PathLike, instead="a path", metavar="FILE"
        ),
    )
    image: str | None = field(default=None, metadata=_form("Image of the containers.", shared=False))
    cpus: str | int | None = field(
        default=None,
        metadata=_form(
            "CPUs of a pod.", types=str | int, instead="a number or a text such as 500m", metavar="N", shared=False
        ),
    )
    memory: str | int | None = field(
        default=None,
        metadata=_form(
            "Memory of a pod, e.g. 512Gi.",
            types=str | int,
            instead="a text such as 512Gi",
            metavar="SIZE",
            shared=False,
        ),
    )
    namespace: str | None = field(default=None, metadata=_form("Namespace of the objects.", shared=False))
    queue: str | None = field(
        default=None,
        metadata=_form("Local queue of Kueue; needed for `keep` and `segment`.", metavar="NAME", shared=False),
    )
    levels: Mapping[str, str] | None = field(
        default=None,
        metadata=_form(
            "Node label of a level; repeatable.",
            types=Mapping,
            instead='the label of each level: {"nvlink": "nvidia.com/gpu.clique"}',
            flag="--level",
            metavar="LEVEL=LABEL",
            repeatable=True,
            shared=False,
        ),
    )
    resource_keys: Mapping[str, str] | None = field(
        default=None,
        metadata=_form(
            "Resource that counts accelerators of a type, e.g. NPU=huawei.com/Ascend910; repeatable.",
            types=Mapping,
            instead='the resource of each type: {"NV_GPU": "nvidia.com/gpu"}',
            flag="--resource-key",
            metavar="TYPE=KEY",
            repeatable=True,
        ),
    )
    pin: bool | None = field(
        default=None,
        metadata=_form(
            "Use the hosts of the inventory only, each for its node rank.", types=bool, instead="True or False"
        ),
    )
    kind: str | None = field(
        default=None, metadata=_form("With kuberay: a RayJob (default), or a RayCluster.", choices=KINDS)
    )
    slurm_release: str | None = field(
        default=None, metadata=_form("Release of Slurm, e.g. 24.05.", metavar="RELEASE", shared=False)
    )
    segment_level: str | None = field(
        default=None,
        metadata=_form("Level of Slurm's blocks (default: the innermost).", metavar="LEVEL", shared=False),
    )
    port: int | None = field(
        default=None,
        metadata=_form(
            "First rendezvous port (default: 29500).", types=int, instead="a number such as 29500", bounds=(1, 65535)
        ),
    )
    own: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for option, form in forms():
            value = getattr(self, option)
            if value is not None and not form.accepts(value):
                raise wrong_type(option, value, form.instead)
        if self.own is not None and not isinstance(self.own, Mapping):
            raise wrong_type("own", self.own, "the value of each option of the launcher")

    def unused(self, options: Collection[str], own: Mapping[str, Form]) -> list[str]:
        """Return the flags of options that are stated, but that a launcher with these options does not take."""
        unused = [
            flag(option, form)
            for option, form in forms()
            if getattr(self, option) and not form.shared and option not in options
        ]
        return [*unused, *(flag(option, Form("")) for option in self.own or {} if option not in own)]

    def besides(self, known: EmitOptions) -> EmitOptions:
        """Return these options, and others where these are not stated. Mappings are joined key by key.

        A command takes the place of an entrypoint, and an entrypoint that of a command.
        """
        if self.command:
            known = replace(known, entrypoint=None)
        if self.entrypoint:
            known = replace(known, command=None)
        values: dict[str, Any] = {}
        for one in fields(EmitOptions):
            ours, theirs = getattr(self, one.name), getattr(known, one.name)
            if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
                values[one.name] = {**theirs, **ours}
            else:
                values[one.name] = theirs if ours in (None, {}) else ours
        return EmitOptions(**values)

    def over(self, known: Options) -> Options:
        """Return what a file says that has these options where they are stated, and others where they are not."""
        changes = {
            option: value
            for option, _ in forms()
            if option != "command" and (value := getattr(self, option)) not in (None, {})
        }
        for amount in ("cpus", "memory"):
            if amount in changes:
                changes[amount] = str(changes[amount])
        if self.base is not None:
            changes["base"] = os.fspath(self.base)
        if self.name is not None:
            changes["named"] = True
        if isinstance(self.command, str):
            changes["commands"] = {DEFAULT: self.command}
        elif self.command:
            others = {} if DEFAULT in self.command else known.commands
            changes["commands"] = {**others, **self.command}
        if self.own:
            changes["own"] = {**known.own, **self.own}
        return replace(known, **changes)


def forms() -> Iterator[tuple[str, Form]]:
    """Yield each option of `EmitOptions`, and how it is stated."""
    for option in fields(EmitOptions):
        if "form" in option.metadata:
            yield option.name, option.metadata["form"]


def option_names() -> dict[str, tuple[str, Form]]:
    """Return the fields of `EmitOptions`, with their forms, by the names of their flags: ``slurm-release``."""
    return {flag(option, form).removeprefix("--"): (option, form) for option, form in forms()}


def kept_options(stated: Mapping[str, Any], to: str, options: Collection[str], own: Collection[str]) -> EmitOptions:
    """Return options that a plan keeps by the names of their flags, for a launcher that takes these.

    They count as far as this one takes them: a job file may state them for another launcher, or for any. The base of
    another one is a file of another kind.

    Raises `PlacementError` for a value that an option cannot have, as only the file of a plan may state it.
    """
    known = option_names()
    same = stated.get(TO) == to
    shared: dict[str, Any] = {}
    others: dict[str, Any] = {}
    wrong: list[Diagnostic] = []
    for name, value in stated.items():
        if name in known:
            option, form = known[name]
            if option == BASE and not same and TO in stated:
                continue
            if form.shared or option in options:
                shared[option] = value
                fault = wrong_value(name, value, form)
                wrong += () if fault is None else (replace(fault, code=PLAN.code, path=f"job.emit.{name}"),)
        elif name != TO and (same or name.replace("-", "_") in own):
            others[name.replace("-", "_")] = value
    if wrong:
        raise PlacementError(wrong)
    return EmitOptions(**shared, own=others)


def wrong_value(name: str, value: Any, form: Form) -> Diagnostic | None:
    """Return the fault of the value of an option, by the name of its flag; ``None`` for a right one."""
    if not form.accepts(value):
        allowed = "true or false" if form.types is bool else form.instead
        return Diagnostic("invalid-value", f"`{name}` is {shown(value)}; it must be {allowed}", form.help)
    try:
        check_values({name: value}, {name: form})
    except ValueError as error:
        return Diagnostic("invalid-value", str(error), form.help)
    return None


def check_own(options: Collection[str], own: Mapping[str, Form]) -> None:
    """Raise ``ValueError`` for options that no launcher may have: unknown shared ones, or own ones that are shared.

    Raises ``TypeError`` for an own option that is no `Form`.
    """
    shared = dict(forms())
    for option in options:
        if option not in shared or shared[option].shared:
            some = [name for name, form in shared.items() if not form.shared]
            raise ValueError(f"unknown option {option!r} in `options`; use some of {', '.join(some)}")
    for option, form in own.items():
        if not isinstance(form, Form):
            raise wrong_type(option, form, "a Form")
        if option in shared or not option.isidentifier():
            raise ValueError(f"an option of its own cannot be named {option!r}; use another identifier")


def check_values(stated: Mapping[str, Any], own: Mapping[str, Form]) -> None:
    """Raise ``TypeError`` or ``ValueError`` for values of a launcher's own options that these cannot have."""
    for option, value in stated.items():
        form = own[option]
        if not form.accepts(value):
            raise wrong_type(option, value, form.instead)
        if form.choices and value not in form.choices:
            raise ValueError(f"{option} is {value!r}; it must be one of {', '.join(form.choices)}")
        if form.bounds is not None and not form.bounds[0] <= value <= form.bounds[1]:
            raise ValueError(f"{option} is {value!r}; it must be from {form.bounds[0]} to {form.bounds[1]}")


def flag(option: str, form: Form) -> str:
    """Return the flag of an option on the command line."""
    return form.flag or f"--{option.replace('_', '-')}"
